//! What can be typed after `yurt-ds ota-server`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// Flags of `yurt-ds ota-server`.
#[derive(Clone, Debug, Args)]
pub struct OtaServerArgs {
    /// Name of the node this runs on; only its pods are watched and touched
    #[arg(long, env = "YURT_DS_NODE_NAME", value_name = "NAME")]
    pub node_name: String,
    /// Kubeconfig of the cluster; without it, the service account of the pod this runs in
    #[arg(long, env = "YURT_DS_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Where the owner of the node asks; port 0 picks a free one and logs it
    #[arg(
        long,
        env = "YURT_DS_LISTEN",
        default_value = "127.0.0.1:10267",
        value_name = "ADDR"
    )]
    pub listen: SocketAddr,
    /// Where the last state is kept, so that pods can be read after a restart without the cloud [default: nowhere]
    #[arg(long, env = "YURT_DS_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Where the kubelet of this node reads its static pods
    #[arg(
        long,
        env = "YURT_DS_MANIFEST_DIR",
        default_value = "/etc/kubernetes/manifests",
        value_name = "DIR"
    )]
    pub manifest_dir: PathBuf,
    /// A further name under which this server may be asked, beside loopback names and the address it listens on
    #[arg(
        long,
        env = "YURT_DS_ALLOWED_HOST",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub allowed_host: Vec<String>,
}
