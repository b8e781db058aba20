//! Form of the commands that a text recommends. Texts contain `yurt-ds ctl VERB NAMESPACE/NAME`; the user may type it differently.

use std::borrow::Cow;

use super::daemonset_api::qualified_name;
use crate::index::SetKey;

/// Beginning of the commands in texts.
const PROGRAM: &str = "yurt-ds ctl ";

/// Form in which the user types commands.
#[derive(Clone, Debug, Default)]
pub(super) struct CommandForm {
    /// True for the kubectl plugin, whose commands begin with `kubectl yurt-ds`.
    pub(super) is_plugin: bool,
    /// DaemonSet whose kind the user named. The name alone may be ambiguous.
    pub(super) with_kind: Option<SetKey>,
}

impl CommandForm {
    /// Returns a text with its commands in this form.
    pub(super) fn apply<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut text = Cow::Borrowed(text);
        if !text.contains("yurt-ds") {
            return text;
        }
        if let Some(key) = &self.with_kind {
            text = Cow::Owned(with_kind(&text, key));
        }
        if self.is_plugin {
            text = Cow::Owned(in_plugin(&text));
        }
        text
    }
}

/// Replaces command lines in a text, such as `yurt-ds ctl status`, by those of the plugin, such as `kubectl yurt-ds status`.
pub fn in_plugin(text: &str) -> String {
    text.replace("yurt-ds version", "kubectl yurt-ds version")
        .replace("yurt-ds ctl", "kubectl yurt-ds")
}

/// Adds the kind to the name of the DaemonSet in all commands.
fn with_kind(text: &str, key: &SetKey) -> String {
    let (bare, qualified) = (key.to_string(), qualified_name(key));
    let mut parts = text.split(PROGRAM);
    let mut named = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        named.push_str(PROGRAM);
        let about = part.split_once(' ').and_then(|(verb, rest)| {
            let rest = rest.strip_prefix(&bare)?;
            // A dot ends a sentence, unless the name continues after it.
            let after_dot = rest.strip_prefix('.').unwrap_or(rest);
            let is_longer = after_dot.starts_with(|next: char| next.is_ascii_alphanumeric())
                || rest.starts_with(['-', '/']);
            (!is_longer).then_some((verb, rest))
        });
        match about {
            Some((verb, rest)) => named.push_str(&format!("{verb} {qualified}{rest}")),
            None => named.push_str(part),
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::SetKind;

    #[test]
    fn commands_have_the_form_that_the_user_types() {
        let text = "roll back: yurt-ds ctl undo shop/web. See yurt-ds ctl why shop/web n1, yurt-ds ctl status shop/web-2 or shop/web.v2: yurt-ds ctl why shop/web.v2 n1";
        let apply = |is_plugin, with_kind| {
            CommandForm {
                is_plugin,
                with_kind,
            }
            .apply(text)
            .into_owned()
        };
        assert_eq!(apply(false, None), text);
        let advanced = SetKey::of_kind(SetKind::Advanced, "shop", "web");
        assert_eq!(
            apply(false, Some(advanced.clone())),
            "roll back: yurt-ds ctl undo ads/shop/web. See yurt-ds ctl why ads/shop/web n1, yurt-ds ctl status shop/web-2 or \
             shop/web.v2: yurt-ds ctl why shop/web.v2 n1"
        );
        assert_eq!(
            apply(true, Some(advanced)),
            "roll back: kubectl yurt-ds undo ads/shop/web. See kubectl yurt-ds why ads/shop/web n1, kubectl yurt-ds status \
             shop/web-2 or shop/web.v2: kubectl yurt-ds why shop/web.v2 n1"
        );
    }
}
