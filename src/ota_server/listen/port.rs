//! TCP listener. On a loopback address, it serves only loopback peers.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tracing::{debug, warn};

use crate::serve::Listener;

/// TCP listener. On a loopback address, it closes connections from other peers before it reads from them.
///
/// The kernel normally drops packets from other machines to 127.0.0.1. It delivers them if `route_localnet` is set on an interface,
/// as kube-proxy does (CVE-2020-8558).
#[derive(Debug)]
pub(super) struct Port {
    listener: TcpListener,
    warned: AtomicBool,
}

impl Port {
    pub(super) fn on(listener: TcpListener) -> Self {
        Self {
            listener,
            warned: AtomicBool::new(false),
        }
    }

    /// Logs a rejected peer. The first one is a warning, and later ones are debug messages.
    fn refuse(&self, peer: IpAddr) {
        if self.warned.swap(true, Ordering::Relaxed) {
            debug!(%peer, "Closed a connection to the loopback port from another machine");
        } else {
            warn!(
                %peer,
                "Closed a connection to the loopback port from another machine. Further ones are logged at level debug. Check \
                 net.ipv4.conf.*.route_localnet and the NAT rules of this node"
            );
        }
    }
}

impl Listener for Port {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        loop {
            let stream = self.listener.next().await?;
            let local = self.listener.local_addr()?.ip();
            match Self::peer(&stream) {
                Some(peer) if may_connect(local, peer) => return Ok(stream),
                Some(peer) => self.refuse(peer),
                None => {} // The peer has already disconnected.
            }
        }
    }

    fn peer(stream: &TcpStream) -> Option<IpAddr> {
        TcpListener::peer(stream)
    }
}

fn may_connect(listener: IpAddr, peer: IpAddr) -> bool {
    !is_loopback(listener) || is_loopback(peer)
}

/// Returns true for a loopback address, including an IPv4 address in IPv6 form.
pub(in crate::ota_server) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_listener_accepts_only_loopback_peers() {
        let case = |listener: &str, peer: &str, expected: bool| {
            let may = may_connect(listener.parse().unwrap(), peer.parse().unwrap());
            assert_eq!(may, expected, "{peer} to {listener}");
        };
        for listener in ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1"] {
            for own in ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1"] {
                case(listener, own, true);
            }
            for foreign in [
                "192.0.2.7",
                "10.0.0.1",
                "169.254.1.1",
                "0.0.0.0",
                "::",
                "2001:db8::1",
                "fe80::1",
                "::ffff:192.0.2.7",
                "::127.0.0.1",
            ] {
                case(listener, foreign, false);
            }
        }
        for open in ["0.0.0.0", "::", "192.0.2.8", "2001:db8::2"] {
            case(open, "192.0.2.7", true);
            case(open, "127.0.0.1", true);
        }
    }
}
