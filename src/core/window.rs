//! Maintenance windows: times at which updates may begin (rancher/system-upgrade-controller#63).
//!
//! Format: `Mon-Fri 22:00-05:00 Europe/Berlin; Sun 00:00-24:00 UTC`, with days, times of the day, and a time zone. A window whose
//! end is before its beginning ends on the next day.
//!
//! A time that is skipped when clocks go forward opens no window. A time that is repeated when clocks go back opens a window only
//! once. The time zones are those of the IANA database, which is part of this program.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::jiff::civil::{Date, DateTime, Time, Weekday};
use k8s_openapi::jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use k8s_openapi::jiff::{Timestamp, ToSpan as _};

use crate::core::foreign::quoted;
use crate::core::instant;

const DAY: u16 = 24 * 60;
/// Maximum number of windows in one annotation.
const LIMIT: usize = 32;
/// Number of days in which the next change is searched. They include each day of the week twice, even if a clock change skips one.
const AHEAD: i8 = 15;

/// Maintenance windows of a DaemonSet or a Node. Updates may begin while one of them is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows {
    text: Arc<str>,
    windows: Box<[Window]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    /// Days of the week on which the window begins, from Monday.
    days: [bool; 7],
    /// Beginning of the window, in minutes since midnight.
    from: u16,
    /// End of the window, in minutes since midnight. If it is not after the beginning, the window ends on the next day.
    to: u16,
    zone: TimeZone,
}

/// State of the windows at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowState {
    /// True if updates may begin at that time.
    pub is_open: bool,
    /// Time at which `is_open` changes next; `None` if it doesn't change within the next two weeks.
    pub changes: Option<Timestamp>,
}

/// Error about an annotation that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Windows {
    /// Parses windows that are separated by `;`.
    ///
    /// # Errors
    /// Returns the first invalid part, with the expected format.
    pub fn read(text: &str) -> Result<Self, Unreadable> {
        let parts: Vec<&str> = text.split(';').map(str::trim).collect();
        if parts.len() > LIMIT {
            return Err(Unreadable(format!("there are more than {LIMIT} windows")));
        }
        let windows = parts.into_iter().map(window).collect::<Result<_, _>>()?;
        Ok(Self {
            text: text.into(),
            windows,
        })
    }

    /// Returns the time at which a window opens, in the time zone of that window, such as `Mon 2026-11-30 02:00 Europe/Berlin`.
    pub fn words(&self, at: Timestamp) -> String {
        let opens = |window: &&Window| {
            let mut spans = Vec::new();
            window.spans_around(at, &mut spans);
            spans.iter().any(|(start, _)| *start == at)
        };
        let mut windows = self.windows.iter();
        let window = windows.find(opens).or(self.windows.first());
        window.map_or_else(
            || instant::words(at),
            |window| {
                let zoned = at.to_zoned(window.zone.clone());
                let zone = window.zone.iana_name().unwrap_or("UTC");
                format!("{} {zone}", zoned.strftime("%a %Y-%m-%d %H:%M"))
            },
        )
    }

    /// Returns the windows as text, as in the annotation.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the state of the windows at `now`.
    pub fn at(&self, now: Timestamp) -> WindowState {
        let mut spans: Vec<(Timestamp, Timestamp)> = Vec::new();
        for window in &self.windows {
            window.spans_around(now, &mut spans);
        }
        spans.sort();
        let mut open_until = None;
        for (start, end) in spans {
            match open_until {
                // Between adjacent or overlapping windows there is no gap, so they count as one.
                Some(until) if start <= until => open_until = Some(until.max(end)),
                Some(_) => break,
                None if end <= now => {}
                None if start <= now => open_until = Some(end),
                None => {
                    return WindowState {
                        is_open: false,
                        changes: Some(start),
                    };
                }
            }
        }
        WindowState {
            is_open: open_until.is_some(),
            changes: open_until,
        }
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Window {
    /// Adds the periods in which this window is open to `spans`, from two days before `now` on.
    fn spans_around(&self, now: Timestamp, spans: &mut Vec<(Timestamp, Timestamp)>) {
        let today = now.to_zoned(self.zone.clone()).date();
        for ahead in -2..=AHEAD {
            let Ok(date) = today.checked_add(i64::from(ahead).days()) else {
                continue;
            };
            if !self.days[day_index(date.weekday())] {
                continue;
            }
            let ends_on = if self.to <= self.from {
                date.tomorrow()
            } else {
                Ok(date)
            };
            let start = self.instant(date, self.from);
            let end = ends_on.ok().and_then(|date| self.instant(date, self.to));
            spans.extend(start.zip(end).filter(|(start, end)| start < end));
        }
    }

    /// Returns the timestamp of a time of day on a date.
    ///
    /// If a clock change skips that time, the result is the time of the change. If the time is repeated, it is the first
    /// occurrence.
    fn instant(&self, date: Date, minutes: u16) -> Option<Timestamp> {
        let (date, minutes) = match minutes {
            DAY => (date.tomorrow().ok()?, 0),
            minutes => (date, minutes),
        };
        let (hour, minute) = (minutes / 60, minutes % 60);
        let time = Time::new(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0).ok()?;
        let civil = DateTime::from_parts(date, time);
        match self.zone.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset }
            | AmbiguousOffset::Fold { before: offset, .. } => offset.to_timestamp(civil).ok(),
            AmbiguousOffset::Gap { after, .. } => {
                let before_it = after.to_timestamp(civil).ok()?;
                let skipping = self.zone.following(before_it).next()?;
                Some(skipping.timestamp())
            }
        }
    }
}

fn window(part: &str) -> Result<Window, Unreadable> {
    let unreadable = |what: &str| {
        Unreadable(format!(
            "{:?} lacks {what}: use a window such as Mon-Fri 22:00-05:00 Europe/Berlin",
            quoted(part)
        ))
    };
    let unknown_zone = |zone: &str| {
        Unreadable(format!(
            "{:?} is not a time zone: use a name such as Europe/Berlin or UTC",
            quoted(zone)
        ))
    };
    let words: Vec<&str> = part.split_whitespace().collect();
    let [days, times, zone] = words[..] else {
        return Err(unreadable("days, times or time zone"));
    };
    let (from, to) = times
        .split_once('-')
        .and_then(|(from, to)| Some((minutes(from)?, minutes(to)?)))
        .filter(|(from, to)| from != to && *from < DAY)
        .ok_or_else(|| {
            unreadable("valid times such as 22:00-05:00 (a whole day is 00:00-24:00)")
        })?;
    Ok(Window {
        days: self::days(days)
            .ok_or_else(|| unreadable("valid days such as Mon-Fri or Sat,Sun"))?,
        from,
        to,
        zone: TimeZoneDatabase::bundled()
            .get(zone)
            .map_err(|_| unknown_zone(zone))?,
    })
}

/// Parses `HH:MM`, up to `24:00`.
fn minutes(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str| {
        let two_digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        two_digits.then(|| text.parse::<u16>().ok()).flatten()
    };
    let (hour, minute) = (number(hour)?, number(minute)?);
    let minutes = hour * 60 + minute;
    (minute < 60 && minutes <= DAY).then_some(minutes)
}

/// Parses days of the week, ignoring case: `Mon`, `Mon-Fri`, `Sat,Sun` or `Fri-Mon`.
fn days(text: &str) -> Option<[bool; 7]> {
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut day, last) = (day(first)?, day(last)?);
        loop {
            days[day] = true;
            if day == last {
                break;
            }
            day = (day + 1) % 7;
        }
    }
    Some(days)
}

const NAMES: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

fn day(name: &str) -> Option<usize> {
    NAMES
        .iter()
        .position(|known| known.eq_ignore_ascii_case(name))
}

fn day_index(weekday: Weekday) -> usize {
    usize::try_from(weekday.to_monday_zero_offset()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[track_caller]
    fn case(windows: &str, now: &str, is_open: bool, changes: &str) {
        let opening = Windows::read(windows).unwrap().at(at(now));
        let expected = WindowState {
            is_open,
            changes: Some(at(changes)),
        };
        assert_eq!(opening, expected, "{windows} at {now}");
    }

    #[test]
    fn windows_open_and_close_at_their_times() {
        let nights = "Mon-Fri 22:00-05:00 Europe/Berlin; Sun 00:00-24:00 UTC";
        // 2026-01-15 is a Thursday, in winter time.
        case(
            nights,
            "2026-01-15T20:59:59Z",
            false,
            "2026-01-15T21:00:00Z",
        );
        case(nights, "2026-01-15T21:00:00Z", true, "2026-01-16T04:00:00Z");
        case(nights, "2026-01-16T03:59:59Z", true, "2026-01-16T04:00:00Z");
        case(
            nights,
            "2026-01-16T04:00:00Z",
            false,
            "2026-01-16T21:00:00Z",
        );
        // The window of Friday night ends at 04:00 UTC on Saturday. The next window is on Sunday.
        case(
            nights,
            "2026-01-17T05:00:00Z",
            false,
            "2026-01-18T00:00:00Z",
        );
        case(nights, "2026-01-18T12:00:00Z", true, "2026-01-19T00:00:00Z");
        // Two adjacent windows count as one.
        case(
            "Mon 08:00-12:00 UTC; Mon 12:00-13:00 UTC",
            "2026-01-19T09:00:00Z",
            true,
            "2026-01-19T13:00:00Z",
        );
    }

    #[test]
    fn skipped_times_do_not_open_and_repeated_ones_open_once() {
        // In Berlin, the time from 02:00 to 03:00 is skipped on 2026-03-29 and repeated on 2026-10-25.
        let skipped = "Sun 02:15-02:45 Europe/Berlin";
        case(
            skipped,
            "2026-03-28T12:00:00Z",
            false,
            "2026-04-05T00:15:00Z",
        );
        let partly = "Sun 02:15-04:00 Europe/Berlin";
        case(
            partly,
            "2026-03-29T00:59:59Z",
            false,
            "2026-03-29T01:00:00Z",
        );
        case(partly, "2026-03-29T01:00:00Z", true, "2026-03-29T02:00:00Z");
        let repeated = "Sun 02:15-02:45 Europe/Berlin";
        case(
            repeated,
            "2026-10-25T00:15:00Z",
            true,
            "2026-10-25T00:45:00Z",
        );
        case(
            repeated,
            "2026-10-25T01:15:00Z",
            false,
            "2026-11-01T01:15:00Z",
        );
        let across = "Sat 22:00-05:00 Europe/Berlin";
        case(across, "2026-10-25T01:30:00Z", true, "2026-10-25T04:00:00Z");
    }

    #[test]
    fn an_invalid_window_is_reported_with_the_expected_syntax() {
        for (text, what) in [
            ("", "days, times or time zone"),
            ("always", "days, times or time zone"),
            ("Mon 22:00-05:00", "days, times or time zone"),
            ("Mon 22:00-05:00 Europe/Berlin;", "days, times or time zone"),
            ("Moon 22:00-05:00 UTC", "days such as"),
            ("Mon- 22:00-05:00 UTC", "days such as"),
            ("Mon 22-05 UTC", "times such as"),
            ("Mon 22:00-22:00 UTC", "times such as"),
            ("Mon 24:00-05:00 UTC", "times such as"),
            ("Mon 22:60-23:00 UTC", "times such as"),
            ("Mon 22:00-25:00 UTC", "times such as"),
            ("Mon 22:00-05:00 Europe/Nowhere", "is not a time zone"),
        ] {
            let unreadable = Windows::read(text).unwrap_err().to_string();
            assert!(unreadable.contains(what), "{text}: {unreadable}");
        }
        assert!(Windows::read(&"Mon 01:00-02:00 UTC;".repeat(40)).is_err());
        assert!(Windows::read("mon,SAT-sun 01:00-24:00 America/New_York").is_ok());
    }
}
