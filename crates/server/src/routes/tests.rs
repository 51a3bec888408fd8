//! The routes and their description say the same.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use leasehold::Locks;
use serde_json::Value;

use super::*;
use crate::settings::Settings;

/// Of the lock `n`, and nobody has it.
const LEASE: &str = "bGVhc2UxOjE6MzAwMDA6aDowMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwNy9u";
const METHODS: [&str; 6] = ["get", "post", "put", "delete", "patch", "head"];

/// Only the code: some answers never end.
fn code(server: SocketAddr, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(server).unwrap();
    let method = method.to_uppercase();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).unwrap();
    String::from_utf8(begin[9..].to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_described_route_is_there_and_every_other_method_is_refused() {
    let locks = Locks::open("memory:").await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = crate::Server::start(locks, Settings::default(), listener).unwrap();
    let description: Value = serde_json::from_str(pages::OPENAPI).unwrap();
    for (path, operations) in description["paths"].as_object().unwrap() {
        let example = path.replace("{name}", "n").replace("{lease_id}", LEASE);
        let example = example.replace("{file}", "app.js");
        for method in METHODS {
            let code = code(server.address(), method, &example);
            assert_ne!(code, "404", "{method} {path}");
            // A GET is also answered without its body.
            let is_there = operations.get(method).is_some()
                || method == "head" && operations.get("get").is_some();
            assert_eq!(code != "405", is_there, "{method} {path}: {code}");
        }
    }
    assert_eq!(code(server.address(), "get", "/v1/nothing"), "404");
}

#[test]
fn every_route_is_described_with_its_methods() {
    let description: Value = serde_json::from_str(pages::OPENAPI).unwrap();
    let paths = description["paths"].as_object().unwrap();
    assert_eq!(paths.len(), ROUTES.len());
    for (_, template, methods) in ROUTES {
        let described = paths[template].as_object().unwrap().keys();
        let described: BTreeSet<_> =
            described.map(|word| word.to_uppercase()).filter(|word| word != "PARAMETERS").collect();
        let methods = methods.split(',').filter(|method| *method != "HEAD");
        assert_eq!(methods.map(str::to_owned).collect::<BTreeSet<_>>(), described, "{template}");
    }
    assert_eq!(description["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn a_path_has_one_variable_part_that_is_not_empty() {
    for (path, expected) in [
        ("/v1/locks/a%2Fb/leases", Some(("/v1/locks/{name}/leases", "a%2Fb"))),
        ("/v1/locks/leases", Some(("/v1/locks/{name}", "leases"))),
        ("/v1/locks/leases/leases", Some(("/v1/locks/{name}/leases", "leases"))),
        ("/v1/leases/x", Some(("/v1/leases/{lease_id}", "x"))),
        ("/v1/leases/x/renew", Some(("/v1/leases/{lease_id}/renew", "x"))),
        ("/v1/locks", Some(("/v1/locks", ""))),
        ("/", Some(("/", ""))),
        ("/v1/locks//leases", None),
        ("/v1/locks/", None),
        ("/v1/locks/a/b/leases", None),
        ("/v1/locks/a/leases/", None),
        ("/V1/locks", None),
        ("", None),
    ] {
        let found = find(path);
        let found = found.as_ref().map(|found| (found.template, &path[found.variable.clone()]));
        assert_eq!(found, expected, "{path}");
    }
}
