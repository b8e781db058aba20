//! Keys of images. By them, the images of a template are compared with the images on a node. A node that has all images needs no
//! pull.
//!
//! A node lists its images in `status.images`. A listed image is on the node; an unlisted one may be there, too, because kubelets
//! list only the 50 largest by default. To save memory, only one number per required image is stored.

use serde_json::Value;

/// Key of an image reference. Different references to the same image have equal keys.
///
/// The key has 64 bits. If two different images had the same key, a missing image might be pulled only when the pod is replaced,
/// and not before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageKey(u64);

/// An image of a pod template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateImage {
    /// Key of the image's reference.
    pub key: ImageKey,
    /// True if the tag may point to a newer image. The kubelet then asks the registry at every start, even if it has the image.
    pub moves: bool,
}

impl ImageKey {
    /// Returns the key of a reference as written in a template or a node's status: `nginx`, `docker.io/library/nginx:latest`,
    /// `x@sha256:…`.
    pub fn from_reference(reference: &str) -> Self {
        let (host, path) = match reference.split_once('/') {
            Some((host, path)) if is_host(host) => (host, path),
            _ => ("docker.io", reference),
        };
        let (name, digest) = match path.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (path, None),
        };
        let (name, tag) = match name.rsplit_once(':') {
            Some((name, tag)) => (name, tag),
            None => (name, "latest"),
        };
        let library = if host == "docker.io" && !name.contains('/') {
            "library/"
        } else {
            ""
        };
        // If a reference has a digest, its tag is ignored, because the digest alone identifies the image.
        let end = match digest {
            Some(digest) => ["@", digest],
            None => [":", tag],
        };
        let parts = [host, "/", library, name].into_iter().chain(end);
        let bytes = parts.flat_map(str::bytes);
        // FNV-1a hash.
        Self(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }
}

/// Returns true if the first part of a reference is a registry.
fn is_host(part: &str) -> bool {
    part == "localhost" || part.contains(['.', ':'])
}

/// Returns true if a reference means the tag `latest`, explicitly or by default.
///
/// The API server chooses the default `imagePullPolicy` by the same rule.
pub fn names_latest(reference: &str) -> bool {
    let name = reference.rsplit('/').next().unwrap_or_default();
    !name.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

/// Returns the images that a node needs before a pod of this template can start, including those of init containers.
pub fn of_template(template: &Value) -> Vec<TemplateImage> {
    let lists = ["initContainers", "containers"].into_iter();
    let containers = lists
        .filter_map(|list| template["spec"][list].as_array())
        .flatten();
    let images = containers.filter_map(|container| {
        let reference = container["image"].as_str()?;
        let asks = match container["imagePullPolicy"].as_str() {
            Some(policy) => policy == "Always",
            None => names_latest(reference),
        };
        Some(TemplateImage {
            key: ImageKey::from_reference(reference),
            moves: asks && !reference.contains('@'),
        })
    });
    images.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_and_nodes_spell_the_same_image_differently() {
        #[track_caller]
        fn same(template: &str, node: &str) {
            assert_eq!(
                ImageKey::from_reference(template),
                ImageKey::from_reference(node)
            );
        }
        same("nginx", "docker.io/library/nginx:latest");
        same("nginx:1.27", "docker.io/library/nginx:1.27");
        same("docker.io/nginx:1.27", "docker.io/library/nginx:1.27");
        same("me/app:2", "docker.io/me/app:2");
        same("127.0.0.1:5000/hello:1", "127.0.0.1:5000/hello:1");
        same("localhost/hello:1", "localhost/hello:1");
        same("nginx:1.27@sha256:ab", "docker.io/library/nginx@sha256:ab");
        let others = [
            "nginx",
            "nginx:1.27",
            "ghcr.io/nginx:1.27",
            "nginx@sha256:ab",
        ];
        let keys: std::collections::BTreeSet<_> =
            others.map(ImageKey::from_reference).into_iter().collect();
        assert_eq!(keys.len(), others.len());
    }

    #[test]
    fn an_image_that_is_pulled_at_every_start_is_marked_as_moving() {
        let of = |container: Value| {
            let images = of_template(&json!({ "spec": { "containers": [container] } }));
            images[0].moves
        };
        assert!(of(json!({ "image": "a:1", "imagePullPolicy": "Always" })));
        assert!(!of(
            json!({ "image": "a:1", "imagePullPolicy": "IfNotPresent" })
        ));
        assert!(!of(
            json!({ "image": "a@sha256:b", "imagePullPolicy": "Always" })
        ));
        assert!(of(json!({ "image": "a" })));
        assert!(!of(json!({ "image": "a:1" })));
    }

    #[test]
    fn images_of_init_containers_are_included() {
        let template = json!({ "spec": {
            "initContainers": [{ "name": "i", "image": "a:1" }],
            "containers": [{ "name": "c", "image": "b:1" }],
        } });
        let keys: Vec<ImageKey> = of_template(&template)
            .iter()
            .map(|image| image.key)
            .collect();
        assert_eq!(keys, ["a:1", "b:1"].map(ImageKey::from_reference));
        assert_eq!(of_template(&Value::Null), []);
    }
}
