use super::*;

fn case(outcome: Outcome) -> Case {
    let after = Duration::from_millis(1_500);
    Case { outcome, after }
}

#[test]
fn hostile_texts_are_escaped_in_attributes() {
    let hostile = "a\"/><b> & '\u{0}\u{1b}[31m\n\u{202e}\u{fffe}\u{ffff}]]> 停";
    assert_eq!(
        escaped(hostile),
        r"a&quot;/&gt;&lt;b&gt; &amp; &apos;\u{0}\u{1b}[31m \u{202e}\u{fffe}\u{ffff}]]&gt; 停"
    );
}

#[test]
fn every_outcome_has_its_junit_element() {
    let reason = || "NoProgress".to_owned();
    let message = || "1 < 2".to_owned();
    let (failed, error) = (
        Outcome::Failed {
            reason: reason(),
            message: message(),
        },
        Outcome::Error {
            reason: reason(),
            message: message(),
        },
    );
    let skipped = Outcome::Skipped { message: message() };
    let cases = [Outcome::Passed, failed, error, skipped]
        .map(|outcome| ("shop".to_owned(), "ds/web".to_owned(), case(outcome)));
    let started = "2026-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(
        suite(&cases, started, Duration::from_secs(2)),
        r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites>
  <testsuite name="yurt-ds ctl status" tests="4" failures="1" errors="1" skipped="1" timestamp="2026-01-01T00:00:00Z" time="2.000">
    <testcase classname="shop" name="ds/web" time="1.500"/>
    <testcase classname="shop" name="ds/web" time="1.500">
      <failure type="NoProgress" message="1 &lt; 2"/>
    </testcase>
    <testcase classname="shop" name="ds/web" time="1.500">
      <error type="NoProgress" message="1 &lt; 2"/>
    </testcase>
    <testcase classname="shop" name="ds/web" time="1.500">
      <skipped message="1 &lt; 2"/>
    </testcase>
  </testsuite>
</testsuites>
"#
    );
}

#[test]
fn a_pending_rollout_fails_at_the_timeout_and_is_skipped_otherwise() {
    let pending = Outcome::Pending {
        message: "half".to_owned(),
    };
    let timeout = pending.clone().ended(Some(Duration::from_secs(600)));
    let message = "Not complete after 10m: half".to_owned();
    assert_eq!(
        timeout,
        Outcome::Failed {
            reason: "Timeout".to_owned(),
            message
        }
    );
    let message = "The wait ended before this rollout: half".to_owned();
    assert_eq!(pending.ended(None), Outcome::Skipped { message });
    assert_eq!(Outcome::Passed.ended(None), Outcome::Passed);
}
