//! `lwp-fleet-node executor`.
//!
//! An executor asks the scheduler for work, which tells the scheduler that it is there as well, and
//! has one port: for other machines that fetch what it made, and for the scheduler when a question
//! is given up.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use ballista_core::BALLISTA_PROTOCOL_VERSION;
use ballista_core::serde::protobuf::executor_grpc_server::{ExecutorGrpc, ExecutorGrpcServer};
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::*;
use ballista_core::serde::scheduler::{
    ExecutorOperatingSystemSpecification, ExecutorSpecification,
};
use ballista_core::serde::{BallistaCodec, BallistaPhysicalExtensionCodec};
use ballista_executor::execution_loop::poll_loop;
use ballista_executor::executor::Executor;
use ballista_executor::flight_service::BallistaFlightService;
use ballista_executor::health::ExecutorHealth;
use datafusion::execution::runtime_env::RuntimeEnv;
use lwp_fleet::Failure;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, async_trait};
use uuid::Uuid;

use crate::args::ExecutorArgs;
use crate::credentials::Credentials;
use crate::engine::{self, MESSAGE};
use crate::gate::Gate;
use crate::listening::{bind, ended};
use crate::noise;
use crate::tables::Tables;
use crate::versions::Versions;
use crate::work::WorkDir;

/// The time in which the scheduler must answer.
const ANSWER: Duration = Duration::from_secs(10);

type Codec = BallistaCodec;

/// Executes until it is told to end.
pub async fn run(args: &ExecutorArgs) -> Result<(), Failure> {
    let store = args.store.open().await?;
    let gate = Gate::of(&store).await?;
    let credentials = Credentials::of_environment()?;
    gate.admit(&credentials).await?;
    if args.listen.ip().is_unspecified() && args.external_host.is_none() {
        let cause =
            format!("{} is no address by which others reach this machine", args.listen.ip());
        return Err(Failure::new(cause).with_help("name one with --external-host"));
    }
    noise::show();
    let (listener, address) = bind(args.listen).await?;
    let parent = args.work_dir.clone().unwrap_or_else(std::env::temp_dir);
    let work = WorkDir::new(&parent)?;
    let versions = Versions::of(store);
    let runtime = engine::runtime(versions.clone(), args.memory, work.path().to_owned())
        .map_err(|error| Failure::new(format!("temporary files: {error}")))?;
    let executor = Arc::new(executor(args, address.port(), runtime, (work.path(), &credentials)));
    let scheduler = scheduler(args, &credentials)?;
    let tables = Arc::new(Tables::of(versions));
    let codec = Codec::new(tables, Arc::new(BallistaPhysicalExtensionCodec::default()));
    let polling =
        poll_loop(scheduler, Arc::clone(&executor), codec, None, None, ExecutorHealth::new());
    let flight = BallistaFlightService::new(work.path().display().to_string());
    let flight = FlightServiceServer::new(flight)
        .max_decoding_message_size(MESSAGE)
        .max_encoding_message_size(MESSAGE);
    let serving = Server::builder()
        .layer(gate)
        .add_service(flight)
        .add_service(ExecutorGrpcServer::new(Cancelling(executor)))
        .serve_with_incoming(TcpListenerStream::new(listener));
    lwp_terminal::say!("lwp-fleet-node: works for {} at {address}", args.scheduler);
    tokio::select! {
        () = ended() => Ok(()),
        ended = polling => Err(Failure::new(format!("work ended: {ended:?}"))),
        ended = serving => Err(Failure::new(format!("{address}: {ended:?}"))),
    }
}

fn scheduler(
    args: &ExecutorArgs,
    credentials: &Credentials,
) -> Result<SchedulerGrpcClient<tonic::transport::Channel>, Failure> {
    let wrong = |error| Failure::new(format!("--scheduler {}: {error}", args.scheduler));
    let endpoint = Endpoint::from_shared(format!("http://{}", args.scheduler)).map_err(wrong)?;
    let endpoint = credentials.equip(endpoint.timeout(ANSWER)).map_err(wrong)?;
    Ok(SchedulerGrpcClient::new(endpoint.connect_lazy())
        .max_decoding_message_size(MESSAGE)
        .max_encoding_message_size(MESSAGE))
}

fn executor(
    args: &ExecutorArgs,
    port: u16,
    runtime: Arc<RuntimeEnv>,
    (work, credentials): (&Path, &Credentials),
) -> Executor {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or(available, |threads| threads.get().into());
    let specification = ExecutorSpecification::default().with_vcores(threads as u32);
    let host = args.external_host.clone().unwrap_or_else(|| args.listen.ip().to_string());
    let port = u32::from(port);
    let metadata = ExecutorRegistration {
        id: Uuid::new_v4().to_string(),
        host: Some(host),
        port,
        grpc_port: port,
        specification: Some(specification.into()),
        os_info: Some(ExecutorOperatingSystemSpecification::default().into()),
        ballista_protocol_version: BALLISTA_PROTOCOL_VERSION,
    };
    let work = work.display().to_string();
    let runtime = Arc::new(move |_: &_| Ok(Arc::clone(&runtime)));
    let config = engine::producer(threads, credentials);
    Executor::new_basic(metadata, &work, runtime, config, threads)
}

/// Ends work on questions that were given up.
struct Cancelling(Arc<Executor>);

#[async_trait]
impl ExecutorGrpc for Cancelling {
    async fn cancel_tasks(
        &self,
        request: Request<CancelTasksParams>,
    ) -> Result<Response<CancelTasksResult>, Status> {
        let mut cancelled = true;
        for task in request.into_inner().task_infos {
            let (stage, id) = (task.stage_id as usize, task.task_id as usize);
            let done = self.0.cancel_task(task.job_id.into(), stage, id).await;
            cancelled &= done.unwrap_or(false);
        }
        Ok(Response::new(CancelTasksResult { cancelled }))
    }

    async fn launch_task(
        &self,
        _: Request<LaunchTaskParams>,
    ) -> Result<Response<LaunchTaskResult>, Status> {
        Err(Status::unimplemented("work is asked for"))
    }

    async fn launch_multi_task(
        &self,
        _: Request<LaunchMultiTaskParams>,
    ) -> Result<Response<LaunchMultiTaskResult>, Status> {
        Err(Status::unimplemented("work is asked for"))
    }

    async fn stop_executor(
        &self,
        _: Request<StopExecutorParams>,
    ) -> Result<Response<StopExecutorResult>, Status> {
        Err(Status::unimplemented("executors end by signals"))
    }

    async fn remove_job_data(
        &self,
        _: Request<RemoveJobDataParams>,
    ) -> Result<Response<RemoveJobDataResult>, Status> {
        Err(Status::unimplemented("the answer to a request for work says what to remove"))
    }
}
