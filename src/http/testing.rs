//! What several tests of this folder need.

use axum::body::Body;
use axum::http::Response;
use http_body_util::BodyExt;

/// The body of an answer that is in memory whole.
pub(super) fn body_text(response: Response<Body>) -> String {
    let mut collecting = std::pin::pin!(response.into_body().collect());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match collecting.as_mut().poll(&mut cx) {
        std::task::Poll::Ready(Ok(whole)) => String::from_utf8(whole.to_bytes().to_vec()).expect("UTF-8"),
        _ => panic!("the body is not in memory"),
    }
}
