//! Client certificates: the names in one, and the identity by the mapping of the server's configuration. The listener
//! has verified before that the certificate is good, and of an authority that this server trusts.

use callgate_core::domain::{identity::MappedIdentity, pattern::Pattern};

/// One line of the mapping.
#[derive(Debug, Clone)]
pub struct CertificateRule {
    /// Pattern of its names: `uri:spiffe://fleet.example/agent/*`.
    pub san: Pattern,
    /// The mapped identity; an empty name is that in the certificate.
    pub is: MappedIdentity,
}

/// Maps a certificate to an identity, by the first line of the mapping that matches one of its names.
#[must_use]
pub fn map_certificate(rules: &[CertificateRule], dns: &[String], uris: &[String]) -> Option<(MappedIdentity, String)> {
    let dns = dns.iter().map(|name| format!("dns:{}", name.to_ascii_lowercase()));
    let names: Vec<String> = dns.chain(uris.iter().map(|uri| format!("uri:{uri}"))).collect();
    rules.iter().find_map(|rule| {
        let name = names.iter().find(|name| rule.san.matches(name))?;
        let bare = name.split_once(':').map_or(name.as_str(), |(_, bare)| bare);
        Some((rule.is.clone().with_default_name(bare), name.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_core::domain::identity::Role;

    fn rule(san: &str, name: &str) -> CertificateRule {
        let is = MappedIdentity { name: name.into(), roles: vec![Role::Agent], ..MappedIdentity::default() };
        CertificateRule { san: Pattern::parse("san", san).expect("a pattern"), is }
    }

    #[test]
    fn the_first_line_that_knows_a_name_says_who_it_is() {
        let rules = [rule("uri:spiffe://fleet/agent/*", ""), rule("dns:*.fleet", "fleet"), rule("dns:a.fleet", "a")];
        let who = |dns: &[String], uris: &[String]| map_certificate(&rules, dns, uris).map(|(is, by)| (is.name, by));
        let (uri, dns) = (["spiffe://fleet/agent/7".to_owned()], ["A.Fleet".to_owned()]);
        let by_uri = Some(("spiffe://fleet/agent/7".to_owned(), "uri:spiffe://fleet/agent/7".to_owned()));
        assert_eq!(who(&dns, &uri), by_uri);
        assert_eq!(who(&dns, &[]), Some(("fleet".into(), "dns:a.fleet".into())));
    }

    #[test]
    fn a_name_of_another_kind_or_of_nobody_is_nobodys() {
        let rules = [rule("uri:spiffe://fleet/*", "")];
        for (dns, uri) in [(None, None), (Some("spiffe://fleet/x"), None), (None, Some("spiffe://fleet2/x"))] {
            let [dns, uris] = [dns, uri].map(|name| name.map(str::to_owned).into_iter().collect::<Vec<_>>());
            assert_eq!(map_certificate(&rules, &dns, &uris).map(|(_, by)| by), None, "{dns:?} {uris:?}");
        }
    }
}
