//! YAML parser that keeps the positions of keys.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::{KeyPositions, Position, join_path};

/// A YAML value with the places of its keys.
#[derive(Debug)]
pub(super) enum YamlNode {
    Scalar(Value),
    List(Vec<YamlNode>),
    Map(Vec<(String, Position, YamlNode)>),
}

impl YamlNode {
    pub(super) fn value(self, path: String, lines: &mut KeyPositions) -> Value {
        match self {
            Self::Scalar(value) => value,
            Self::List(items) => {
                let items = items.into_iter().enumerate();
                let items = items.map(|(i, item)| {
                    let path = format!("{path}[{i}]");
                    if let Self::Map(members) = &item {
                        // An entry stands where its first key does.
                        lines.0.extend(members.first().map(|(_, place, _)| (path.clone(), *place)));
                    }
                    item.value(path, lines)
                });
                items.collect()
            }
            Self::Map(members) => {
                let mut map = Map::new();
                for (key, place, node) in members {
                    let path = join_path(&path, &key);
                    lines.0.insert(path.clone(), place);
                    map.insert(key, node.value(path, lines));
                }
                Value::Object(map)
            }
        }
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = YamlNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlNode, D::Error> {
        YamlNode::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<YamlNode, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(YamlNode::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlNode, A::Error> {
        let mut members = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let place = (key.referenced.line(), key.referenced.column());
            members.push((key.value, place, map.next_value()?));
        }
        Ok(YamlNode::Map(members))
    }
}
