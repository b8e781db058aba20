//! Test of hostile text in pods. The agent has to escape the text in its answers.

use super::*;
use crate::core::testing::{HOSTILE, assert_safe};

async fn post(agent: &Agent, path: &str) -> String {
    let request = Request::post(path).header("host", "127.0.0.1");
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let body = agent.answer(request).await.into_body();
    let text = body.collect().await.unwrap().to_bytes();
    String::from_utf8(text.to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn responses_cannot_control_a_terminal_and_keep_all_values() {
    let world = World::new();
    let long = HOSTILE.repeat(600);
    for (name, text) in [("a", HOSTILE), ("b", long.as_str())] {
        world.create(name, NODE).await;
        let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "reason": text, "message": text });
        let patch = json!({
            "metadata": { "annotations": { "note": text } },
            "status": { "reason": text, "conditions": [
                condition("PodNeedUpgrade", "True"), condition("PodImageReady", "False"),
            ] },
        });
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        world.pods.patch(name, &params, &patch).await.unwrap();
        world
            .pods
            .patch_status(name, &params, &patch)
            .await
            .unwrap();
    }
    let agent = Agent::start(world.config()).unwrap();
    pass(SECOND).await;
    let (_, list) = get(&agent, "/pods", &[]).await;
    let (_, upgrades) = get(&agent, "/yurt-ds/v1/upgrades", &[]).await;
    for document in [&list, &upgrades] {
        let forbidden = document
            .chars()
            .find(|letter| crate::core::foreign::is_forbidden(*letter));
        assert_eq!(forbidden, None, "{document:?}");
    }
    let list: Value = serde_json::from_str(&list).unwrap();
    for (item, text) in [(0, HOSTILE), (1, long.as_str())] {
        assert_eq!(list["items"][item]["metadata"]["annotations"]["note"], text);
        assert_eq!(list["items"][item]["status"]["reason"], text);
    }
    let upgrades: Value = serde_json::from_str(&upgrades).unwrap();
    assert_eq!(upgrades["items"][0]["imageReady"]["message"], HOSTILE);
    let mut answers = Vec::new();
    for name in ["a", "b", "c"] {
        for action in ["upgrade", "imagepull", "upgrade?force=true", "nothing"] {
            let path = format!("/openyurt.io/v1/namespaces/default/pods/{name}/{action}");
            answers.push(post(&agent, &path).await);
        }
    }
    assert!(
        answers.iter().any(|text| text.contains("\\u{1b}]52")),
        "{answers:#?}"
    );
    for answer in answers {
        assert_safe("an answer", &answer);
        assert!(!answer.contains('\n') && answer.len() < 8_000, "{answer}");
    }
}
