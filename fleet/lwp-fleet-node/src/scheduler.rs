//! `lwp-fleet-node scheduler`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::serde::BallistaPhysicalExtensionCodec;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::create_scheduler;
use futures::StreamExt;
use lwp_fleet::Failure;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use crate::args::SchedulerArgs;
use crate::connections::Connection;
use crate::credentials::Credentials;
use crate::engine::{self, MESSAGE};
use crate::gate::Gate;
use crate::jobs::Jobs;
use crate::listening::{bind, ended};
use crate::noise;
use crate::tables::Tables;
use crate::versions::Versions;
use crate::watch::Watched;

/// Seconds of silence after which Ballista itself takes an executor for lost, long after its
/// questions are [spoilt](crate::jobs).
const FORGOTTEN_SECONDS: u64 = 120;
/// Seconds for which finished questions are kept, in case whoever asked does not clean up.
const KEPT_SECONDS: u64 = 300;
/// Memory for planning, in MiB.
const MEMORY_MIB: usize = 1024;

/// Schedules until it is told to end.
pub async fn run(args: &SchedulerArgs) -> Result<(), Failure> {
    let store = args.store.open().await?;
    let gate = Gate::of(&store).await?;
    let credentials = Credentials::of_environment()?;
    noise::show();
    let (listener, address) = bind(args.listen).await?;
    let config = Arc::new(config(args, address, Versions::of(store), &credentials)?);
    let failed = |error| Failure::new(format!("the scheduler does not start: {error}"));
    let cluster = BallistaCluster::new_from_config(&config).await.map_err(failed)?;
    let scheduler = create_scheduler(cluster, config).await.map_err(failed)?;
    let jobs = Jobs::default();
    let service = SchedulerGrpcServer::new(Watched::new(scheduler, jobs.clone()))
        .max_decoding_message_size(MESSAGE)
        .max_encoding_message_size(MESSAGE);
    lwp_terminal::say!("lwp-fleet-node: questions to df://{address}");
    let connections = TcpListenerStream::new(listener)
        .map(|accepted| Ok::<_, io::Error>(Connection::new(accepted?, jobs.clone())));
    let served = Server::builder()
        .layer(gate)
        .add_service(service)
        .serve_with_incoming_shutdown(connections, ended());
    served.await.map_err(|error| Failure::new(format!("{address}: {error}")))
}

fn config(
    args: &SchedulerArgs,
    address: SocketAddr,
    versions: Versions,
    credentials: &Credentials,
) -> Result<SchedulerConfig, Failure> {
    let tables = Arc::new(Tables::of(versions.clone()));
    let runtime = engine::runtime(versions, MEMORY_MIB, std::env::temp_dir())
        .map_err(|error| Failure::new(format!("temporary files: {error}")))?;
    Ok(SchedulerConfig {
        external_host: address.ip().to_string(),
        bind_host: address.ip().to_string(),
        bind_port: address.port(),
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        executor_timeout_seconds: FORGOTTEN_SECONDS,
        no_executors_grace_period_seconds: FORGOTTEN_SECONDS,
        task_max_failures: 1,
        stage_max_failures: 1,
        finished_job_data_clean_up_interval_seconds: KEPT_SECONDS,
        finished_job_state_clean_up_interval_seconds: KEPT_SECONDS,
        grpc_client_max_message_size: MESSAGE as u32,
        override_config_producer: Some(engine::producer(args.parts.get().into(), credentials)),
        override_session_builder: Some(Arc::new(move |config| {
            Ok(engine::state(config, Arc::clone(&runtime)))
        })),
        override_logical_codec: Some(tables),
        override_physical_codec: Some(Arc::new(BallistaPhysicalExtensionCodec::default())),
        override_create_grpc_client_endpoint: Some(credentials.for_ballista()),
        ..SchedulerConfig::default()
    })
}
