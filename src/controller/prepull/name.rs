//! Names of pre-pull Jobs.

/// Prefix of the name of every pre-pull Job (OpenYurt).
const PREFIX: &str = "image-pre-pull-";

/// Maximum length of a Job's name. The name is also a label of the Job's pod.
const LONGEST: usize = 63;

/// Number of hexadecimal digits in the digest that replaces the end of a long name.
const DIGITS: usize = 16;

/// Returns the name of the Job: `image-pre-pull-<pod>-<hash>`, as in OpenYurt. In a name that is too long, a digest of the whole
/// name replaces the end.
pub(super) fn job_name(pod: &str, revision: &str) -> String {
    let whole = format!("{PREFIX}{pod}-{revision}");
    if whole.len() <= LONGEST {
        return whole;
    }
    let room = LONGEST - DIGITS - 1;
    let mut head: String = whole.chars().take_while(char::is_ascii).collect();
    head.truncate(room);
    let head = head.trim_end_matches(['-', '.']);
    format!("{head}-{:0DIGITS$x}", fnv(whole.as_bytes()))
}

/// FNV-1a hash with 64 bits. A collision requires two long names with the same beginning in one namespace at the same time.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_openyurts_where_it_fits_and_never_too_long() {
        #[track_caller]
        fn case(pod: &str, revision: &str, expected: &str) {
            let name = job_name(pod, revision);
            assert_eq!(name, expected);
            assert!(name.len() <= LONGEST, "{name}");
        }
        case(
            "nginx-daemonset-bwzss",
            "7f9f6846dc",
            "image-pre-pull-nginx-daemonset-bwzss-7f9f6846dc",
        );
        let fits = "a".repeat(37);
        case(
            &fits,
            "7f9f6846dc",
            &format!("image-pre-pull-{fits}-7f9f6846dc"),
        );
        let long = "a".repeat(38);
        case(
            &long,
            "7f9f6846dc",
            "image-pre-pull-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-8cd909abc0b8600d",
        );
        let dotted = format!("{}.{}", "a".repeat(30), "b".repeat(250));
        let name = job_name(&dotted, "7f9f6846dc");
        assert!(
            name.starts_with(&format!("{PREFIX}{}-", "a".repeat(30))),
            "{name}"
        );
        for before in 20..40 {
            let name = job_name(&format!("{}.b-{}", "a".repeat(before), "b".repeat(60)), "1");
            let ends_badly = |part: &str| part.ends_with('-') || part.starts_with('-');
            assert!(!name.split('.').any(ends_badly), "{name}");
        }
    }

    #[test]
    fn names_that_are_cut_differ_where_the_whole_differs() {
        let pod = |end: &str| format!("{}-{end}", "a".repeat(60));
        let names = [
            job_name(&pod("aaaaa"), "1"),
            job_name(&pod("aaaab"), "1"),
            job_name(&pod("aaaaa"), "2"),
        ];
        assert!(names[0] != names[1] && names[0] != names[2] && names[1] != names[2]);
    }
}
