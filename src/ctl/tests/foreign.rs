//! Tests with hostile text in every string of every object. The text must not affect commands, conditions, Events or the log.

use std::io;
use std::sync::{Arc, Mutex};

use tracing_subscriber::prelude::*;

use super::*;
use crate::core::foreign::is_forbidden;
use crate::core::names::{HOLD, LEASE};
use crate::core::settings::SETTINGS;
use crate::core::testing::{HOSTILE, assert_safe};
use crate::ctl::table::CellStyle;
use crate::index::OWN_CONDITIONS;
use crate::log::{self, Format};

/// Commands with text output that read all kinds of objects.
const LOOKS: [&str; 6] = [
    "status",
    "status -o wide",
    "status web -o wide",
    "why web n1",
    "settings web -o wide",
    "undo web --dry-run",
];
/// Commands with JSON or YAML output.
const DOCUMENTS: [&str; 4] = [
    "status web -o json",
    "settings web -o yaml",
    "why web n1 -o yaml",
    "undo web --dry-run -o yaml",
];
/// Commands that take longer, write to the cluster, or fail.
const OTHERS: [&str; 10] = [
    "plan web",
    "plan web -o json",
    "eject web --dry-run",
    "migrate web --to advanced --dry-run",
    "status wed",
    "why web n7",
    "status web -n nowhere",
    "approve web nothing",
    "pause web",
    "resume web",
];

const WEB: &str = "/apis/apps/v1/namespaces/default/daemonsets/web";

/// Returns the output of a command on a terminal with colour, followed by its error.
async fn printed(world: &CtlWorld, line: &str) -> String {
    let words = format!("yurt-ds ctl {line}");
    let Command::Ctl(args) = Cli::parse_from(words.split(' ')).command else {
        panic!("not ctl")
    };
    let context = Context {
        access: world.context.access.clone(),
        namespace: args.access.namespace.clone(),
        clock: world.context.clock.clone(),
    };
    let mut out = Vec::new();
    let mut screen = Screen::new(&mut out, false, true);
    let ended = perform(&context, &args.verb, &mut screen).await;
    let error = ended
        .err()
        .map_or_else(String::new, |error| error.to_string());
    String::from_utf8(out).unwrap() + &error
}

async fn look(world: &CtlWorld, line: &str, what: &str) {
    let text = printed(world, line).await;
    let what = format!("{line}, {what}");
    let green = CellStyle::SEQUENCES[0];
    assert!(!text.contains(&format!("{green}FORGED")), "{what}: {text}");
    let own = CellStyle::SEQUENCES.iter();
    assert_safe(&what, &own.fold(text, |text, own| text.replace(own, "")));
}

/// Runs a command with document output. Checks that the output has no terminal control characters.
async fn read(world: &CtlWorld, line: &str, what: &str) {
    let text = printed(world, line).await;
    let wrong = text
        .split('\n')
        .flat_map(str::chars)
        .find(|letter| is_forbidden(*letter));
    assert_eq!(wrong, None, "{line}, {what}: {text:?}");
}

async fn call(
    world: &CtlWorld,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<Value, kube::Error> {
    let body = match method {
        "GET" => Vec::new(),
        _ => serde_json::to_vec(body).unwrap(),
    };
    let request = http::Request::builder().method(method).uri(path);
    let request = request
        .header("content-type", "application/json")
        .body(body);
    world.client.request(request.unwrap()).await
}

/// Writes an object and its status with the current resource version.
async fn put(world: &CtlWorld, path: &str, object: &Value) -> Result<(), kube::Error> {
    let mut object = object.clone();
    let mut version = call(world, "GET", path, &Value::Null).await?;
    object["metadata"]["resourceVersion"] = version["metadata"]["resourceVersion"].take();
    call(world, "PUT", path, &object).await?;
    if object["status"].is_object() {
        object["metadata"]["resourceVersion"].take();
        call(world, "PUT", &format!("{path}/status"), &object).await?;
    }
    Ok(())
}

/// Collects the pointers to all strings of a value.
fn strings(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at.to_owned()),
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                strings(item, &format!("{at}/{number}"), found);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = key.replace('~', "~0").replace('/', "~1");
                strings(value, &format!("{at}/{key}"), found);
            }
        }
        _ => {}
    }
}

/// Puts the text into each string of the object in turn. Runs `ctl` whenever the API server accepts the object.
async fn walk(world: &CtlWorld, path: &str, more: Value, text: &str) -> usize {
    let mut object = call(world, "GET", path, &Value::Null).await.unwrap();
    json_patch::merge(&mut object, &more);
    put(world, path, &object).await.unwrap();
    let mut pointers = Vec::new();
    strings(&object, "", &mut pointers);
    let mut taken = 0;
    for pointer in pointers {
        let identity = [
            "uid",
            "name",
            "namespace",
            "resourceVersion",
            "deletionTimestamp",
        ];
        let is_identity = |word: &&str| pointer == format!("/metadata/{word}");
        if identity.iter().any(is_identity) || pointer.starts_with("/metadata/ownerReferences") {
            continue;
        }
        let mut changed = object.clone();
        *changed.pointer_mut(&pointer).unwrap() = text.into();
        if put(world, path, &changed).await.is_ok() {
            taken += 1;
            let what = format!("{path} {pointer}");
            for line in LOOKS {
                look(world, line, &what).await;
            }
            for line in DOCUMENTS {
                read(world, line, &what).await;
            }
        }
        put(world, path, &object).await.unwrap();
    }
    taken
}

fn condition(kind: &str, status: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": "Reason", "message": "a message",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

/// Returns the status of a pod with long texts from its kubelet.
fn pod_status(text: &str) -> Value {
    let ended = json!({ "terminated": {
        "exitCode": 1, "reason": text, "message": text, "containerID": "containerd://a",
        "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z",
    } });
    json!({ "status": {
        "reason": text, "message": text,
        "conditions": [condition("Ready", "False"), condition("PodScheduled", "True")],
        "containerStatuses": [{
            "name": "c", "image": "web:2", "imageID": "", "ready": false, "restartCount": 3,
            "state": { "waiting": { "reason": text, "message": text } }, "lastState": ended,
        }],
    } })
}

async fn names(world: &CtlWorld, path: &str) -> Vec<String> {
    let list = call(world, "GET", path, &Value::Null).await.unwrap();
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| format!("{path}/{}", item["metadata"]["name"].as_str().unwrap()))
        .collect()
}

fn long() -> String {
    HOSTILE.repeat(600) + &"long ".repeat(10_000)
}

#[tokio::test(start_paused = true)]
async fn strings_of_objects_cannot_control_the_terminal() {
    let world = CtlWorld::with_nodes(2).await;
    world.set_image("web:2").await;
    world.replace("n1").await;
    let lease = json!({
        "metadata": { "name": LEASE },
        "spec": {
            "holderIdentity": "a", "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:00.000000Z", "acquireTime": "2026-01-01T00:00:00.000000Z",
        },
    });
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    call(&world, "POST", leases, &lease).await.unwrap();
    let pods = names(&world, "/api/v1/namespaces/default/pods").await;
    let revisions = names(
        &world,
        "/apis/apps/v1/namespaces/default/controllerrevisions",
    )
    .await;
    let annotations =
        json!({ "kubernetes.io/change-cause": "a cause", "example.com/note": "a note" });
    let about = json!({ "metadata": { "annotations": annotations } });
    let mut node = about.clone();
    node["metadata"]["annotations"][HOLD] =
        json!([{ "daemonset": "default/web", "reason": "calibration" }])
            .to_string()
            .into();
    node["status"] =
        json!({ "conditions": [condition("Ready", "False"), condition("Other", "True")] });
    let own = OWN_CONDITIONS.iter().map(|kind| condition(kind, "True"));
    let mut set = about.clone();
    set["status"] = json!({ "conditions": own.collect::<Vec<_>>() });
    for text in [HOSTILE, &long()] {
        for (path, more, least) in [
            (&pods[0], pod_status("Reason"), 6),
            (&"/api/v1/nodes/n1".to_owned(), node.clone(), 6),
            (&WEB.to_owned(), set.clone(), 8),
            (&revisions[0], about.clone(), 2),
            (&format!("{leases}/{LEASE}"), about.clone(), 2),
        ] {
            let taken = walk(&world, path, more, text).await;
            assert!(taken >= least, "{path}: {taken} fields");
        }
    }
}

/// Returns annotations with hostile values for each setting.
fn hostile_settings() -> Vec<(&'static str, String)> {
    let word = serde_json::to_string(HOSTILE).unwrap();
    let whole = SETTINGS
        .iter()
        .flat_map(|setting| [(setting.key, HOSTILE.to_owned()), (setting.key, long())]);
    let within = [
        (
            "apps.openyurt.io/waves",
            format!("[{{name: {word}, selector: 'a=b'}}]"),
        ),
        (
            "apps.openyurt.io/waves",
            format!("[{{name: a, selector: {word}}}]"),
        ),
        (
            "apps.openyurt.io/waves",
            format!("[{{name: a, {word}: b}}]"),
        ),
        (
            "apps.openyurt.io/waves",
            format!("[{{name: a, selector: 'a=b'}}]\n{HOSTILE}"),
        ),
        (
            "apps.openyurt.io/approved-waves",
            format!("{HOSTILE}@{HOSTILE}"),
        ),
        (
            "apps.openyurt.io/maintenance-window",
            format!("Mon-Fri 22:00-05:00 {HOSTILE}"),
        ),
        ("apps.openyurt.io/selector", format!("a in ({HOSTILE})")),
    ];
    whole.chain(within).collect()
}

#[tokio::test(start_paused = true)]
async fn settings_cannot_control_the_terminal() {
    let world = CtlWorld::with_nodes(2).await;
    world.set_image("web:2").await;
    let original = call(&world, "GET", WEB, &Value::Null).await.unwrap();
    for (key, value) in hostile_settings() {
        let mut changed = original.clone();
        changed["metadata"]["annotations"][key] = value.as_str().into();
        put(&world, WEB, &changed).await.unwrap();
        let what = format!("{key}: {:.60}", value);
        for line in LOOKS {
            look(&world, line, &what).await;
        }
        for line in DOCUMENTS {
            read(&world, line, &what).await;
        }
        let rows = world.json("settings web").await;
        let rows = rows["settings"].as_array().unwrap();
        let row = rows.iter().find(|row| row["annotation"] == key).unwrap();
        // The document has the whole value, or its beginning if the value is very long.
        let got = row["value"].as_str().unwrap();
        assert!(value.starts_with(got) && got.len() >= value.len().min(32_000));
    }
}

#[tokio::test(start_paused = true)]
async fn no_command_prints_terminal_control_sequences() {
    let world = CtlWorld::with_nodes(2).await;
    world.set_image("web:2").await;
    for text in [HOSTILE, &long()] {
        for pod in names(&world, "/api/v1/namespaces/default/pods").await {
            let mut object = call(&world, "GET", &pod, &Value::Null).await.unwrap();
            json_patch::merge(&mut object, &pod_status(text));
            object["metadata"]["annotations"] = json!({ "example.com/note": text });
            put(&world, &pod, &object).await.unwrap();
        }
        for line in OTHERS.into_iter().chain(LOOKS) {
            look(&world, line, "hostile pods").await;
        }
        let said = format!("{text} denied");
        let _denied = world.cluster.faults().add(move |request| {
            if request.user_agent == "ctl" && request.resource == "nodes" {
                Fault::Denied(said.as_str().into())
            } else {
                Fault::Pass
            }
        });
        for line in LOOKS.into_iter().chain(DOCUMENTS) {
            look(&world, line, "a hostile refusal").await;
        }
    }
}

/// Log output that is kept in memory.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn conditions_events_and_logs_contain_no_control_characters() {
    let kept = Kept::default();
    let sink = kept.clone();
    let lines = log::lines(Format::Text, false, move || sink.clone());
    let level =
        tracing_subscriber::filter::Targets::new().with_target("yurt_ds", tracing::Level::DEBUG);
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(level));
    let _logged = tracing::subscriber::set_default(subscriber);

    let world = CtlWorld::with_nodes(2).await;
    let clock = world.context.clock.clone();
    let client = world
        .cluster
        .client(&crate::k8s::client::Role::Controller.user_agent());
    let _running = crate::sim::world::start_controller(client, clock, SetKind::Native);
    let broken = Behaviour {
        image_error: true,
        ..Behaviour::default()
    };
    world.kubelets.behaviour("web:2", broken).await.unwrap();
    world.set_image("web:2").await;
    for text in [HOSTILE, &long()] {
        for pod in names(&world, "/api/v1/namespaces/default/pods").await {
            let mut object = call(&world, "GET", &pod, &Value::Null).await.unwrap();
            json_patch::merge(&mut object, &pod_status(text));
            // Ignore errors: the controller may replace the pod at the same time.
            let _ = put(&world, &pod, &object).await;
        }
        tokio::time::sleep(Duration::from_secs(1_200)).await;
        for (key, value) in hostile_settings() {
            let original = call(&world, "GET", WEB, &Value::Null).await.unwrap();
            let annotations = json!({ "metadata": { "annotations": { key: value } } });
            world.patch(annotations).await;
            let mut restored = call(&world, "GET", WEB, &Value::Null).await.unwrap();
            restored["metadata"]["annotations"] = original["metadata"]["annotations"].clone();
            restored["metadata"]["resourceVersion"].take();
            call(&world, "PUT", WEB, &restored).await.unwrap();
        }
        let said = text.to_owned();
        let _denied = world.cluster.faults().add(move |request| {
            if request.verb == "delete" && request.resource == "pods" {
                Fault::Denied(said.as_str().into())
            } else {
                Fault::Pass
            }
        });
        world
            .set_image(if text == HOSTILE { "web:3" } else { "web:4" })
            .await;
        tokio::time::sleep(Duration::from_secs(1_200)).await;
    }
    let set = call(&world, "GET", WEB, &Value::Null).await.unwrap();
    let conditions = set["status"]["conditions"].as_array().unwrap();
    assert!(conditions.len() > 2, "{conditions:?}");
    for condition in conditions {
        for field in ["reason", "message"] {
            let text = condition[field].as_str().unwrap();
            assert_safe("a condition", text);
            assert!(!text.contains('\n') && text.len() < 8_000, "{text}");
        }
    }
    let events = call(&world, "GET", "/apis/events.k8s.io/v1/events", &Value::Null)
        .await
        .unwrap();
    let events = events["items"].as_array().unwrap().iter();
    let own = events.filter(|event| event["reportingController"] == crate::core::names::CONTROLLER);
    let notes: Vec<&str> = own.filter_map(|event| event["note"].as_str()).collect();
    let shows = |text: &str| notes.iter().any(|note| note.contains(text));
    assert!(shows("FORGED") && shows("\\u{1b}]52"), "{notes:#?}");
    for note in &notes {
        assert_safe("an Event", note);
        assert!(!note.contains('\n') && note.len() <= 1_024, "{note}");
    }
    let log = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("FORGED"), "{log}");
    for line in log.split('\n') {
        assert_safe("the log", line);
    }
}
