//! Tests of `ctl status` in pipelines: `-o jsonl` and `--junit`.

use super::*;

/// Returns the lines of an output as JSON.
fn lines(text: &str) -> Vec<Value> {
    let line =
        |line: &str| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    text.lines().map(line).collect()
}

fn fields(value: &Value) -> Vec<&String> {
    value.as_object().unwrap().keys().collect()
}

#[tokio::test(start_paused = true)]
async fn a_jsonl_line_has_the_fields_of_json_and_a_time() {
    let world = CtlWorld::with_nodes(2).await;
    world
        .create(
            "other",
            json!({ "apps.openyurt.io/update-strategy": "auto" }),
        )
        .await;
    let all = lines(&world.text("status -o jsonl").await);
    assert_eq!(all.len(), 2);
    assert_eq!(
        (&all[0]["name"], &all[1]["name"]),
        (&json!("other"), &json!("web"))
    );
    let (text, _) = world.run("status web -o jsonl").await;
    let mut line = lines(&text).remove(0);
    assert_eq!(text.lines().count(), 1);
    let time = line.as_object_mut().unwrap().remove("time").unwrap();
    assert!(text_of(&time).parse::<Timestamp>().is_ok(), "{time}");
    let json = world.json("status web").await;
    assert_eq!(fields(&line), fields(&json));
}

#[tokio::test(start_paused = true)]
async fn a_wait_prints_a_line_per_change_and_the_final_state_last() {
    let world = CtlWorld::with_nodes(2).await;
    world.set_image("web:2").await;
    let replacing = async {
        world.replace("n1").await;
        world.replace("n2").await;
    };
    let ((text, ended), ()) = tokio::join!(world.run("status web --wait -o jsonl"), replacing);
    assert_eq!(ended, Ok(Code::Complete));
    let lines = lines(&text);
    let updated: Vec<&Value> = lines.iter().map(|line| &line["updated"]).collect();
    assert!(
        updated.is_sorted_by_key(|number| number.as_u64()),
        "{updated:?}"
    );
    assert_eq!(
        (updated[0], updated[updated.len() - 1]),
        (&json!(0), &json!(2))
    );
    assert_eq!(lines[lines.len() - 1]["phase"], "Complete");
    assert!(lines.iter().all(|line| line.get("nodes").is_none()));
    let repeated = lines.windows(2).any(|pair| {
        let state = |line: &Value| {
            (
                line["phase"].clone(),
                line["verdicts"].clone(),
                line["unavailable"].clone(),
            )
        };
        state(&pair[0]) == state(&pair[1])
    });
    assert!(!repeated, "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_last_line_says_that_the_daemonset_was_deleted() {
    let world = CtlWorld::with_nodes(1).await;
    world.set_image("web:2").await;
    let deleting = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let sets: Api<DaemonSet> = Api::namespaced(world.client.clone(), "default");
        sets.delete("web", &Default::default()).await.unwrap();
    };
    let ((text, ended), ()) = tokio::join!(world.run("status web --wait -o jsonl"), deleting);
    assert_eq!(ended, Ok(Code::Superseded));
    let lines = lines(&text);
    assert_eq!(lines[0]["phase"], "Progressing");
    let last = &lines[lines.len() - 1];
    assert_eq!(last["phase"], "Superseded", "{text}");
    assert!(
        text_of(&last["message"]).starts_with("There is no DaemonSet web"),
        "{text}"
    );
    assert_eq!(fields(last), fields(&lines[0]));
}

#[tokio::test(start_paused = true)]
async fn a_wait_repeats_no_line_and_its_timeout_is_exact() {
    let world = CtlWorld::with_nodes(2).await;
    world.set_image("web:2").await;
    let (text, ended) = world.run("status web --wait --timeout 20s").await;
    assert_eq!(ended, Ok(Code::Progressing));
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let distinct: std::collections::BTreeSet<&str> = lines.iter().copied().collect();
    assert_eq!(lines.len(), distinct.len(), "{text}");
    assert!(text.contains("Not complete after 20s"), "{text}");
}

struct Report(tempfile::TempDir);

impl Report {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Runs a command with this report.
    async fn run(&self, world: &CtlWorld, line: &str) -> (String, Result<Code, CliError>) {
        let path = self.0.path().join("rollout.xml");
        let (_, ended) = world
            .run(&format!("{line} --junit {}", path.display()))
            .await;
        (std::fs::read_to_string(path).unwrap(), ended)
    }
}

#[tokio::test(start_paused = true)]
async fn a_junit_report_distinguishes_complete_pending_and_paused_rollouts() {
    let (world, report) = (CtlWorld::with_nodes(2).await, Report::new());
    let (xml, ended) = report.run(&world, "status web --wait").await;
    assert_eq!(ended, Ok(Code::Complete));
    assert!(
        xml.contains("tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"0\""),
        "{xml}"
    );
    assert!(
        xml.contains("<testcase classname=\"default\" name=\"ds/web\" time=\"0.000\"/>"),
        "{xml}"
    );
    world.set_image("web:2").await;
    let (xml, ended) = report.run(&world, "status web --wait --timeout 30s").await;
    assert_eq!(ended, Ok(Code::Progressing));
    assert!(
        xml.contains("<failure type=\"Timeout\" message=\"Not complete after 30s: "),
        "{xml}"
    );
    assert!(xml.contains("name=\"ds/web\" time=\"30.0"), "{xml}");
    world
        .create(
            "other",
            json!({ "apps.openyurt.io/update-strategy": "auto" }),
        )
        .await;
    world.text("pause web").await;
    let (xml, ended) = report.run(&world, "status --wait").await;
    assert_eq!(ended, Ok(Code::Paused));
    assert!(xml.contains("tests=\"2\" failures=\"1\""), "{xml}");
    assert!(xml.contains("<failure type=\"Paused\" message=\""), "{xml}");
}

#[tokio::test(start_paused = true)]
async fn a_junit_report_is_also_written_after_an_error() {
    let (world, report) = (CtlWorld::with_nodes(1).await, Report::new());
    let (xml, ended) = report.run(&world, "status absent --wait").await;
    assert_eq!(ended.unwrap_err().code, Code::NotFound);
    assert!(
        xml.contains("tests=\"1\" failures=\"0\" errors=\"1\""),
        "{xml}"
    );
    assert!(
        xml.contains("name=\"absent\"") && xml.contains("<error type=\"NotFound\""),
        "{xml}"
    );
    let (xml, ended) = report.run(&world, "status a=b --wait").await;
    assert_eq!(ended.unwrap_err().code, Code::Usage);
    assert!(
        xml.contains("name=\"a=b\"") && xml.contains("<error type=\"Usage\""),
        "{xml}"
    );
    world.set_image("web:2").await;
    let again = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.set_image("web:3").await;
    };
    let ((xml, ended), ()) = tokio::join!(report.run(&world, "status web --wait"), again);
    assert_eq!(ended, Ok(Code::Superseded));
    assert!(
        xml.contains("<failure type=\"Superseded\" message=\"default/web: stopped waiting"),
        "{xml}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unwritable_junit_report_is_an_error_before_the_wait() {
    let world = CtlWorld::with_nodes(1).await;
    world.set_image("web:2").await;
    let before = tokio::time::Instant::now();
    let error = world
        .error("status web --wait --junit /absent/rollout.xml")
        .await;
    assert_eq!(
        (error.code, before.elapsed()),
        (Code::Failed, Duration::ZERO)
    );
    assert!(
        error
            .text
            .starts_with("The JUnit file /absent/rollout.xml cannot be written: No such file"),
        "{error}"
    );
    // Opening a named pipe without a reader would block forever.
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let line = format!("status web --wait --junit {}", pipe.display());
    let error = world.error(&line).await;
    assert!(error.text.contains("is not a regular file"), "{error}");
    for line in ["--timeout 1m", "--junit rollout.xml", "--revision abc"] {
        let words = format!("yurt-ds ctl status web --watch {line}");
        let refused = Cli::try_parse_from(words.split(' ')).unwrap_err();
        assert!(refused.to_string().contains("--watch"), "{refused}");
    }
    for line in ["status web --junit rollout.xml", "why web n1 -o jsonl"] {
        let words = format!("yurt-ds ctl {line}");
        let refused = Cli::try_parse_from(words.split(' '))
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("--wait")
                || refused.contains("[possible values: table, wide, json, yaml]"),
            "{refused}"
        );
    }
}
