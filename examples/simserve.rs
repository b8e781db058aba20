//! scratch
use yurt_ds::{
    clock::Clock,
    sim::cluster::{Cluster, Options},
};
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let cluster = Cluster::new(Options::new(Clock::System, 7));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 18080))
        .await
        .unwrap();
    let address = listener.local_addr().unwrap();
    std::fs::write("/tmp/simapi.kubeconfig", cluster.kubeconfig(address)).unwrap();
    cluster
        .serve(listener, async { tokio::signal::ctrl_c().await.unwrap() })
        .await
        .unwrap();
    for c in cluster.requests() {
        println!("{c:?}");
    }
}
