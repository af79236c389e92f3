use std::convert::Infallible;
use std::time::Duration;

use http::Response;

use super::*;

#[test]
fn c15_writes_of_objects_take_a_share_of_their_namespace() {
    let of = |method: Method, path: &'static str| {
        namespace(&method, &Uri::from_static(path)).map(str::to_owned)
    };
    let object = "/apis/convoke.dev/v1alpha1/namespaces/team/agents/a?force=true";
    assert_eq!(of(Method::PATCH, object).as_deref(), Some("team"));
    assert_eq!(of(Method::DELETE, "/api/v1/namespaces/a/configmaps/c").as_deref(), Some("a"));
    assert_eq!(of(Method::GET, object), None);
    for path in [
        "/apis/convoke.dev/v1alpha1/namespaces/team/agents/a/status?x=y",
        "/apis/events.k8s.io/v1/namespaces/team/events",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/api/v1/namespaces/team",
    ] {
        assert_eq!(of(Method::POST, path), None, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn c15_writes_that_hang_leave_room_for_those_of_other_namespaces() {
    let service = tower::service_fn(|request: Request<Body>| async move {
        if request.uri().path().contains("/hangs") {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        Ok::<_, Infallible>(Response::new(Body::empty()))
    });
    let client = Writes::new().client(Client::new(service, "default"));
    let write = |namespace: &str| {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/c");
        let request = Request::patch(path).body(Body::empty()).expect("a request");
        let client = client.clone();
        async move { client.send(request).await.map(drop) }
    };
    let began = Instant::now();
    let mut hanging = tokio::task::JoinSet::new();
    for number in 0..400 {
        hanging.spawn(write(&format!("hangs{}", number % 2)));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for _ in 0..100 {
        write("calm").await.expect("written");
    }
    assert_eq!(began.elapsed(), Duration::from_secs(1), "at once");
    // Who gives up takes no place.
    hanging.abort_all();
    while hanging.join_next().await.is_some() {}
    let mut calm: tokio::task::JoinSet<_> = (0..400).map(|_| write("calm")).collect();
    while let Some(written) = calm.join_next().await {
        written.expect("it ends").expect("written");
    }
    assert_eq!(began.elapsed(), Duration::from_secs(1));
}
