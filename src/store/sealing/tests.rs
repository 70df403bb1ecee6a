use std::{hint::black_box, time::Instant};

use proptest::prelude::*;

use super::*;
use crate::sealing::file::{KeySource, read};

fn key(byte: u8) -> SealingKey {
    SealingKey::parse(hex::encode([byte; KEY_BYTES]).as_bytes()).expect("a key")
}

fn keys(ids: &[(&str, u8)]) -> TenantKeys {
    TenantKeys::new(ids.iter().map(|(id, byte)| ((*id).to_owned(), key(*byte))).collect(), &key(0), false)
}

const PLACE: ValueLocation<'_> = ValueLocation { tenant: TenantId(1), session: "s", seq: 7, what: "call.arguments" };

fn seal_value(keys: &TenantKeys, value: &str) -> String {
    Sealer::new(keys).and_then(|mut sealer| sealer.seal(value, &PLACE)).expect("sealed")
}

#[test]
fn a_value_opens_in_its_place_alone() {
    let keys = keys(&[("2026-11", 1)]);
    let stored = seal_value(&keys, "wren");
    assert!(stored.starts_with("encrypted:1:2026-11:") && !stored.contains("wren"), "{stored}");
    assert_eq!(keys.open(stored.clone(), &PLACE).as_deref(), Ok("wren"));
    for elsewhere in [
        ValueLocation { tenant: TenantId(2), ..PLACE },
        ValueLocation { session: "t", ..PLACE },
        ValueLocation { seq: 8, ..PLACE },
        ValueLocation { what: "outcome.result", ..PLACE },
    ] {
        assert_eq!(keys.open(stored.clone(), &elsewhere), Err(DecryptError::Changed), "{elsewhere:?}");
    }
}

#[test]
fn a_value_that_was_changed_does_not_open() {
    let keys = keys(&[("k", 1)]);
    let stored = seal_value(&keys, "wren");
    for at in "encrypted:1:k:".len()..stored.len() {
        let other = if stored.as_bytes()[at] == b'A' { "B" } else { "A" };
        let changed = format!("{}{other}{}", &stored[..at], &stored[at + 1..]);
        assert_eq!(keys.open(changed, &PLACE), Err(DecryptError::Changed), "{at}");
    }
    for cut in ["encrypted:1:k:", "encrypted:1:k:AAAA", &stored[..stored.len() - 3]] {
        assert_eq!(keys.open(cut.to_owned(), &PLACE), Err(DecryptError::Changed), "{cut}");
    }
}

#[test]
fn an_old_key_opens_what_it_has_sealed_and_a_missing_one_is_named() {
    let (old, both) = (keys(&[("old", 1)]), keys(&[("new", 2), ("old", 1)]));
    let stored = seal_value(&old, "wren");
    assert_eq!(both.open(stored.clone(), &PLACE).as_deref(), Ok("wren"));
    assert_eq!(keys(&[("new", 2)]).open(stored, &PLACE), Err(DecryptError::KeyMissing("old".to_owned())));
    assert_eq!(both.open("from before".to_owned(), &PLACE).as_deref(), Ok("from before"));
    assert_eq!(key_id(&seal_value(&both, "wren")), Some("new"));
}

#[test]
fn no_two_values_are_sealed_alike_and_no_key_is_told() {
    let keys = keys(&[("k", 0xAB)]);
    let mut sealer = Sealer::new(&keys).expect("randomness");
    let all: std::collections::BTreeSet<_> = (0..64).map(|_| sealer.seal("", &PLACE)).collect();
    assert_eq!(all.len(), 64);
    assert_ne!(seal_value(&keys, "wren"), seal_value(&keys, "wren"));
    let told = format!("{keys:?} {sealer:?}");
    assert!(!told.contains("171, 171") && !told.to_lowercase().contains("abab"), "{told}");
}

#[test]
fn a_key_is_32_bytes_in_base64_or_hexadecimal() {
    let bytes = [0xF7; KEY_BYTES];
    let padded = base64::engine::general_purpose::STANDARD.encode(bytes);
    for text in [hex::encode(bytes), hex::encode_upper(bytes), padded.clone(), BASE64.encode(bytes), padded + "\n"] {
        assert_eq!(SealingKey::parse(text.as_bytes()).map(|key| key.0[..] == bytes), Ok(true), "{text}");
    }
    for text in ["", "secret", &hex::encode([1; 31]), &BASE64.encode([1; 33]), &"g".repeat(64)] {
        assert!(SealingKey::parse(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn the_file_names_keys_by_tenant() {
    let text = "tenants:\n  acme:\n    keys:\n    - {id: 2026-11, file: /run/secrets/a}\n    \
                - {id: 2026-05, command: [kms, decrypt, x]}\n    fingerprint: {file: /run/secrets/f}\n";
    let read_back = read(text).expect("a file");
    let acme = &read_back["acme"];
    assert_eq!(acme.keys[0], ("2026-11".to_owned(), KeySource::File("/run/secrets/a".into())));
    assert_eq!(acme.keys[1].1, KeySource::Command(["kms", "decrypt", "x"].map(str::to_owned).into()));
    assert!(!acme.anew);
    for (wrong, field) in [
        ("keys: []\n    fingerprint: {file: f}", "tenants.acme.keys"),
        ("keys: [{id: a b, file: f}]\n    fingerprint: {file: f}", "tenants.acme.keys[0].id"),
        ("keys: [{id: a, file: f}, {id: a, file: g}]\n    fingerprint: {file: f}", "tenants.acme.keys[1].id"),
        ("keys: [{id: a}]\n    fingerprint: {file: f}", "tenants.acme.keys[0]"),
        ("keys: [{id: a, file: f, command: [c]}]\n    fingerprint: {file: f}", "tenants.acme.keys[0]"),
        ("keys: [{id: a, file: f}]\n    fingerprint: {command: []}", "tenants.acme.fingerprint"),
        ("keys: [{id: a, file: f}]", "the file"),
        ("keys: [{id: a, key: f}]\n    fingerprint: {file: f}", "the file"),
    ] {
        let error = read(&format!("tenants:\n  acme:\n    {wrong}\n")).expect_err(wrong);
        assert_eq!(error.field, field, "{error:?}");
    }
}

proptest! {
    #[test]
    fn whatever_is_sealed_opens(value in ".{0,300}") {
        let keys = keys(&[("k", 1)]);
        let stored = seal_value(&keys, &value);
        prop_assert!(stored.len() <= sealed_length(value.len()));
        prop_assert_eq!(keys.open(stored, &PLACE), Ok(value));
    }
}

/// Cost of encryption: `cargo test --release --lib sealing -- --ignored --nocapture`.
#[test]
#[ignore = "a figure, not a test"]
#[allow(clippy::disallowed_methods, clippy::print_stdout, reason = "it measures, and prints what it measured")]
fn figures() {
    let keys = keys(&[("k", 1)]);
    for bytes in [100, 1 << 10, 100 << 10] {
        let value = "x".repeat(bytes);
        let rounds = 200_000_000 / (bytes + 2_000);
        let started = Instant::now();
        for _ in 0..rounds {
            black_box(seal_value(&keys, black_box(&value)));
        }
        let sealing = started.elapsed() / rounds as u32;
        let stored = seal_value(&keys, &value);
        let started = Instant::now();
        for _ in 0..rounds {
            black_box(keys.open(black_box(stored.clone()), &PLACE)).expect("opened");
        }
        println!("{bytes} bytes: sealed in {sealing:?}, opened in {:?}", started.elapsed() / rounds as u32);
    }
}
