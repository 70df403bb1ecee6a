//! Timing of rejected tokens: figures for docs/security.md#authentication-errors. `credentials.rs` tests the common
//! part of all rejections.

use std::{collections::BTreeMap, hint::black_box, net::IpAddr, time::Instant};

use callgate_core::{
    domain::{audit::Actor, identity::Role, ids::DEFAULT_TENANT},
    policy::Policy,
};
use callgate_net::listener::TransportSettings;
use callgate_proto::v1::{GetServerInfoRequest, server_service_client::ServerServiceClient};
use callgate_server::{
    auth::token::{RANDOM_BYTES, mint},
    gate::PresentedCredential,
    grpc::GrpcSettings,
};

use crate::{
    common::{
        all,
        wire::{Plane, with_token},
    },
    credentials::{token, who},
};

const ROUNDS: usize = 240;
/// Asked at the same time; as many as keep the machine from being busy.
const AT_ONCE: usize = 16;
const LOOKS: usize = 200_000;

/// The bytes encoded by a token's part: a number in 62 digits.
fn bytes_of(digits: &str, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for digit in digits.bytes() {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'A'..=b'Z' => digit - b'A' + 10,
            _ => digit - b'a' + 36,
        };
        let mut carry = u16::from(value);
        for byte in bytes.iter_mut().rev() {
            carry += u16::from(*byte) * 62;
            *byte = (carry & 0xff) as u8;
            carry >>= 8;
        }
    }
    bytes
}

/// A whole token, checksum and all, of the same id: the first `right` bytes of its secret are the same, no other is.
pub(crate) fn like(text: &str, right: usize) -> String {
    let parts: Vec<&str> = text.split('_').collect();
    let mut random = [bytes_of(parts[2], 8), bytes_of(&parts[3][..43], 32)].concat();
    random[8 + right..].iter_mut().for_each(|byte| *byte ^= 0x55);
    let random: [u8; RANDOM_BYTES] = random.try_into().expect("as many");
    let like = mint(&[Role::from_name(parts[1]).expect("a role")], &random).text;
    assert_eq!(like.split('_').nth(2), Some(parts[2]), "the same id");
    like
}

#[test]
fn a_token_can_be_made_that_is_right_in_part() {
    let whole = mint(&[Role::Agent], &std::array::from_fn(|n| n as u8)).text;
    assert_eq!(like(&whole, 32), whole);
    assert_ne!(like(&whole, 31), whole);
}

fn mean_and_error(times: &[f64]) -> (f64, f64) {
    let count = times.len() as f64;
    let mean = times.iter().sum::<f64>() / count;
    let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (variance / count).sqrt())
}

/// `cargo test --test grpc -- --ignored --nocapture refusals_take`
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
#[allow(clippy::print_stdout, clippy::disallowed_methods, reason = "figures")]
async fn refusals_take_the_same_time_however_much_of_a_token_is_right() {
    // Behind a proxy, so that each comes from an address of its own.
    let way = TransportSettings { is_behind_proxy: true, ..TransportSettings::default() };
    let plane = Plane::serve_with(&Policy::default(), &way, GrpcSettings::default()).await;
    let (whole, _) = token(&plane.gate, who("desk", &[Role::Agent])).await;
    let (revoked, known) = token(&plane.gate, who("gone", &[Role::Agent])).await;
    plane.gate.identities.revoke_token(DEFAULT_TENANT, &known.id, &Actor::from("root")).await.expect("revoked");
    let tokens = BTreeMap::from([
        ("no token at all", "hello".to_owned()),
        ("its checksum is wrong", whole[..whole.len() - 1].to_owned() + "~"),
        ("an id that nobody has", mint(&[Role::Agent], &[9; RANDOM_BYTES]).text),
        ("a known id, nothing else", like(&whole, 0)),
        ("half of the secret", like(&whole, 16)),
        ("all but its last byte", like(&whole, 31)),
        ("all of it, revoked", revoked),
    ]);
    let channel = plane.channel().await;
    let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let asked: Vec<_> =
        (0..ROUNDS).flat_map(|n| tokens.iter().map(move |(what, token)| (n, *what, token.clone()))).collect();
    for (n, some) in asked.chunks(AT_ONCE).enumerate() {
        let asked = some.iter().enumerate().map(|(place, (_, what, token))| {
            let (channel, token, what) = (channel.clone(), token.clone(), *what);
            async move {
                let mut request = with_token(Some(&token), GetServerInfoRequest {});
                let address = IpAddr::from([10, (n >> 8) as u8, n as u8, place as u8]).to_string();
                request.metadata_mut().insert("x-forwarded-for", address.parse().expect("ASCII"));
                // Not all at one instant.
                tokio::time::sleep(std::time::Duration::from_micros(3_130 * place as u64)).await;
                let began = Instant::now();
                let told = ServerServiceClient::new(channel).get_server_info(request).await;
                let took = began.elapsed().as_secs_f64() * 1e3;
                assert_eq!(told.expect_err(what).code(), tonic::Code::Unauthenticated, "{what}");
                (what, took)
            }
        });
        for (what, took) in all(asked.collect::<Vec<_>>()).await {
            times.entry(what).or_default().push(took);
        }
    }
    println!("over the wire, ms, {ROUNDS} refusals each: mean, its standard error, median");
    for (what, times) in &mut times {
        times.sort_by(f64::total_cmp);
        let (mean, error) = mean_and_error(times);
        println!("{what:26} {mean:8.3} {error:6.3} {:8.3}", times[times.len() / 2]);
    }
    println!("held against what is stored, ns, {LOOKS} times each, in turns: median");
    let held =
        tokens.iter().filter(|(what, _)| what.contains("known id") || what.contains("secret") || what.contains("byte"));
    let held: Vec<_> = held.chain(std::iter::once((&"all of it", &whole))).collect();
    let mut looks: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for _ in 0..LOOKS {
        drop(plane.gate.identities.identity(PresentedCredential::Bearer(&whole), None));
        for (what, token) in &held {
            let began = Instant::now();
            drop(black_box(plane.gate.identities.identity(PresentedCredential::Bearer(black_box(token)), None)));
            looks.entry(what).or_default().push(began.elapsed().as_nanos() as u64);
        }
        if plane.gate.identities.identity(PresentedCredential::Bearer(&whole), None).is_none() {
            plane.gate.identities.looked_up(&whole, None).await.expect("it holds");
        }
    }
    for (what, mut looks) in looks {
        looks.sort_unstable();
        println!("{what:26} {:8}", looks[looks.len() / 2]);
    }
}
