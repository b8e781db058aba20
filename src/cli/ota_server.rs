//! Command line of `yurt-ds ota-server`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

/// Flags of `yurt-ds ota-server`.
#[derive(Clone, Debug, Args)]
pub struct OtaServerArgs {
    /// Name of this node; only its pods are watched and changed
    #[arg(long, env = "YURT_DS_NODE_NAME", value_name = "NAME")]
    pub node_name: String,
    /// Kubeconfig of the cluster [default: the service account of this pod]
    #[arg(long, env = "YURT_DS_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Address of the API for the node owner; port 0 picks a free port and logs it, none opens no port
    #[arg(
        long,
        env = "YURT_DS_LISTEN",
        default_value = "127.0.0.1:10267",
        value_name = "ADDR|none"
    )]
    pub listen: ListenAddress,
    /// Unix socket with the same API; its mode and group decide which users may connect [default: no socket]
    #[arg(long, env = "YURT_DS_SOCKET", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Permissions of the socket, in octal; clients need write permission to connect
    #[arg(
        long,
        env = "YURT_DS_SOCKET_MODE",
        default_value = "0660",
        value_parser = mode,
        value_name = "MODE",
        requires = "socket"
    )]
    pub socket_mode: u32,
    /// Group of the socket, by name or number [default: the group of this process]
    #[arg(
        long,
        env = "YURT_DS_SOCKET_GROUP",
        value_name = "GROUP",
        requires = "socket"
    )]
    pub socket_group: Option<String>,
    /// Extra address that answers only /live and /ready, for probes if --listen is none [default: no address]
    #[arg(long, env = "YURT_DS_PROBE_LISTEN", value_name = "ADDR")]
    pub probe_listen: Option<SocketAddr>,
    /// Directory for the last known state, so that pods can be listed after a restart without the cloud [default: not saved]
    #[arg(long, env = "YURT_DS_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Directory from which the kubelet of this node reads static pods
    #[arg(
        long,
        env = "YURT_DS_MANIFEST_DIR",
        default_value = "/etc/kubernetes/manifests",
        value_name = "DIR"
    )]
    pub manifest_dir: PathBuf,
    /// Host name that clients may use, in addition to loopback names and the listen address; can be repeated
    #[arg(
        long,
        env = "YURT_DS_ALLOWED_HOST",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub allowed_host: Vec<String>,
}

/// Address of the TCP port; `None` opens no port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddress(pub Option<SocketAddr>);

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let address = text.parse().map_err(|_| {
            "write an IP address with a port, such as 127.0.0.1:10267, or none".to_owned()
        })?;
        Ok(Self(Some(address)))
    }
}

/// Parses the permission bits of a socket.
fn mode(text: &str) -> Result<u32, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| digits && *mode <= 0o777)
        .ok_or_else(|| "write octal permissions from 0 to 0777, such as 0660".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn read(flags: &str) -> Result<OtaServerArgs, String> {
        let words = ["yurt-ds", "ota-server", "--node-name", "n1"].into_iter();
        match Cli::try_parse_from(words.chain(flags.split_whitespace())) {
            Ok(cli) => match cli.command {
                Command::OtaServer(args) => Ok(args),
                other => panic!("{other:?}"),
            },
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_listen_address_is_optional_and_the_socket_has_a_mode_and_a_group() {
        let args = read("").unwrap();
        let usual = "127.0.0.1:10267".parse().unwrap();
        assert_eq!(args.listen, ListenAddress(Some(usual)));
        assert_eq!((args.socket, args.socket_mode), (None, 0o660));
        let args = read("--listen none --socket /s --socket-mode 600 --socket-group 990").unwrap();
        assert_eq!(args.listen, ListenAddress(None));
        assert_eq!((args.socket, args.socket_mode), (Some("/s".into()), 0o600));
        assert_eq!(args.socket_group.as_deref(), Some("990"));
    }

    #[test]
    fn invalid_listen_addresses_and_socket_flags_name_the_valid_syntax() {
        let case = |flags: &str, word: &str| {
            let error = read(flags).unwrap_err();
            assert!(error.contains(word), "{flags}: {error}");
        };
        for listen in ["off", "NONE", "127.0.0.1", ":10267", "localhost:10267"] {
            case(&format!("--listen {listen}"), "or none");
        }
        case("--listen=", "or none");
        for mode in [
            "0880",
            "1777",
            "rw",
            "-1",
            "+660",
            "0o660",
            "07777777777777",
        ] {
            case(&format!("--socket /s --socket-mode={mode}"), "such as 0660");
        }
        case("--socket-mode 0600", "--socket <PATH>");
        case("--socket-group ota", "--socket <PATH>");
    }
}
