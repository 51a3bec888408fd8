//! The router and its description say the same.

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use leasehold::Locks;
use serde_json::Value;
use tower::ServiceExt as _;

use super::*;
use crate::settings::Settings;

const METHODS: [&str; 6] = ["get", "post", "put", "delete", "patch", "head"];

/// Pages for people, which are not part of the API.
const PAGES: [&str; 2] = ["/", "/assets/{file}"];

async fn status(app: &Arc<App>, method: &str, path: &str) -> StatusCode {
    let request = Request::builder().method(method.to_uppercase().as_str()).uri(path);
    let request = request.body(Body::empty()).unwrap();
    router(app.clone()).oneshot(request).await.unwrap().status()
}

#[tokio::test]
async fn every_described_route_is_there_and_every_other_method_is_refused() {
    let locks = Locks::open("memory:").await.unwrap();
    let app = Arc::new(App::new(locks, Settings::default(), None));
    let description: Value = serde_json::from_str(pages::OPENAPI).unwrap();
    let paths = description["paths"].as_object().unwrap();
    assert!(paths.len() > 10, "{}", paths.len());
    for (path, operations) in paths {
        if PAGES.contains(&path.as_str()) {
            continue;
        }
        let example = path.replace("{name}", "n").replace("{lease_id}", "x");
        for method in METHODS {
            let status = status(&app, method, &example).await;
            assert_ne!(status, StatusCode::NOT_FOUND, "{method} {path}");
            let is_described = operations.get(method).is_some();
            // axum answers HEAD where there is a GET.
            let is_there = is_described || method == "head" && operations.get("get").is_some();
            assert_eq!(status != StatusCode::METHOD_NOT_ALLOWED, is_there, "{method} {path}");
        }
    }
}

#[test]
fn every_route_is_described() {
    let description: Value = serde_json::from_str(pages::OPENAPI).unwrap();
    let source = include_str!("mod.rs");
    let routes: Vec<_> = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix(".route(\"")?.split('"').next())
        .collect();
    assert!(routes.len() > 10, "{routes:?}");
    for route in routes {
        assert!(crate::metrics::ROUTES.contains(&route), "{route}");
        assert!(description["paths"].get(route).is_some(), "{route}");
    }
    assert_eq!(description["info"]["version"], env!("CARGO_PKG_VERSION"));
}
