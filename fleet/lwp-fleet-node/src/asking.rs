//! Questions to a cluster.
//!
//! A question changes nothing, so that it can be asked again. Whoever asks does not trust the
//! scheduler to notice everything: if no part is finished for a while, the question is given up and
//! asked once more, and then it has failed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use async_trait::async_trait;
use ballista_core::client::BallistaClient;
use ballista_core::extension::BallistaConfigGrpcEndpoint;
use ballista_core::serde::protobuf::execute_query_params::Query;
use ballista_core::serde::protobuf::execute_query_result::Result as Submitted;
use ballista_core::serde::protobuf::job_status::Status as Job;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::*;
use ballista_core::version::insert_version_header;
use datafusion::execution::SessionState;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::LogicalPlan;
use datafusion_proto::logical_plan::AsLogicalPlan;
use datafusion_proto::protobuf::LogicalPlanNode;
use futures::StreamExt;
use lwp_fleet::{ClusterArgs, Failure};
use lwp_query::{Error, Remote, Result};
use lwp_terminal::escape::printable;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use uuid::Uuid;

use crate::credentials::Credentials;
use crate::engine::{self, MESSAGE};
use crate::tables::Tables;
use crate::watch::FINISHED;

/// The time in which the scheduler must answer.
const ANSWER: Duration = Duration::from_secs(10);
/// The time between questions about a question.
const PAUSE: Duration = Duration::from_millis(50);
/// The time for which a scheduler is waited for that does not accept connections.
const RETURN: Duration = Duration::from_secs(20);
/// The time in which a machine must begin to send the rows that it has, and each time go on.
const SEND: Duration = Duration::from_secs(20);
/// The most letters of a reason.
const LETTERS: usize = 600;
/// The time for removing what was asked.
const TIDY: Duration = Duration::from_secs(2);
/// The parts of a plan that is made where it is asked; the scheduler plans again.
const PARTS: usize = 16;

type Scheduler = SchedulerGrpcClient<Channel>;

/// A cluster.
#[derive(Debug)]
pub struct Cluster {
    address: String,
    credentials: Credentials,
    least_rows: u64,
    stall: Duration,
}

/// The end of an attempt.
enum Ending {
    /// Something that another attempt may not meet.
    Lost(String),
    /// A job that failed; its parts were tried several times.
    Failed(String),
    /// Something that another attempt will meet as well.
    Final(Error),
}

impl From<Status> for Ending {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::Unauthenticated | Code::PermissionDenied => {
                Self::Final(Error::Refused(status.message().to_owned()))
            }
            Code::FailedPrecondition | Code::InvalidArgument | Code::Unimplemented => {
                Self::Final(Error::Question(status.message().to_owned()))
            }
            Code::Internal => Self::Failed(status.message().to_owned()),
            _ => Self::Lost(status.message().to_owned()),
        }
    }
}

impl Cluster {
    /// The cluster that the command line names, with the secret of the environment.
    ///
    /// # Errors
    ///
    /// If there is no secret, or the address is none.
    pub fn new(args: &ClusterArgs) -> std::result::Result<Self, Failure> {
        let named = args.cluster.as_deref().unwrap_or_default();
        let address = named.strip_prefix("df://").filter(|address| address.contains(':'));
        let wrong = || Failure::new(format!("'{named}' is no cluster: df://HOST:PORT is wanted"));
        let cluster = Self {
            address: address.ok_or_else(wrong)?.to_owned(),
            credentials: Credentials::of_environment()?,
            least_rows: args.cluster_from,
            stall: Duration::from_secs(args.stall),
        };
        let wrong = |error| Failure::new(format!("--cluster: {error}"));
        cluster.endpoint().map_err(wrong)?;
        Ok(cluster)
    }

    fn endpoint(&self) -> std::result::Result<Endpoint, tonic::transport::Error> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address))?;
        self.credentials.equip(endpoint.timeout(ANSWER))
    }

    /// Connects to the scheduler, which may be about to come back.
    async fn connect(&self, patience: Duration) -> std::result::Result<Scheduler, Ending> {
        let lost = |error: tonic::transport::Error| {
            let cause =
                std::error::Error::source(&error).map_or(String::new(), |e| format!(": {e}"));
            Ending::Lost(format!("no connection to the scheduler at {}{cause}", self.address))
        };
        let endpoint = self.endpoint().map_err(lost)?;
        let begun = Instant::now();
        loop {
            match endpoint.connect().await {
                Ok(channel) => {
                    let scheduler = SchedulerGrpcClient::new(channel);
                    return Ok(scheduler
                        .max_decoding_message_size(MESSAGE)
                        .max_encoding_message_size(MESSAGE));
                }
                Err(error) if begun.elapsed() >= patience => return Err(lost(error)),
                Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
            }
        }
    }

    async fn attempt(
        &self,
        plan: &[u8],
        most: usize,
        patience: Duration,
    ) -> std::result::Result<Vec<RecordBatch>, Ending> {
        let mut scheduler = self.connect(patience).await?;
        let session = Uuid::new_v4().to_string();
        let job = submit(&mut scheduler, plan, &session).await?;
        let answer = async {
            let done = self.wait(&mut scheduler, &job).await?;
            self.rows(done, most).await
        };
        let answer = answer.await;
        // The scheduler cleans up itself as well, after some time.
        let tidy = tidy(&mut scheduler, job, session, answer.is_err());
        let _ = tokio::time::timeout(TIDY, tidy).await;
        answer
    }

    /// Waits until a job is done, as long as it gets on.
    async fn wait(
        &self,
        scheduler: &mut Scheduler,
        job: &str,
    ) -> std::result::Result<SuccessfulJob, Ending> {
        let mut last = (0, Instant::now());
        loop {
            let request = GetJobStatusParams { job_id: job.to_owned() };
            let answer = scheduler.get_job_status(request).await?;
            let finished =
                answer.metadata().get(FINISHED).and_then(|n| n.to_str().ok()?.parse().ok());
            match answer.into_inner().status.and_then(|status| status.status) {
                Some(Job::Successful(done)) => return Ok(done),
                Some(Job::Failed(failed)) => return Err(Ending::Failed(failed.error)),
                _ => (),
            }
            let finished: u64 = finished.unwrap_or(0);
            if finished != last.0 {
                last = (finished, Instant::now());
            }
            if last.1.elapsed() >= self.stall {
                let seconds = self.stall.as_secs();
                return Err(Ending::Lost(format!(
                    "no part of the question was finished for {seconds} s"
                )));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Fetches the rows of a job that is done, from the machines that have them.
    async fn rows(
        &self,
        done: SuccessfulJob,
        most: usize,
    ) -> std::result::Result<Vec<RecordBatch>, Ending> {
        let (mut batches, mut rows) = (Vec::new(), 0);
        for part in done.partition_location {
            let mut stream = timely(self.part(part)).await??;
            while let Some(batch) = timely(stream.next()).await? {
                let batch = batch.map_err(|error| Ending::Lost(error.to_string()))?;
                rows += batch.num_rows();
                if rows > most {
                    return Err(Ending::Final(Error::Rows(most)));
                }
                batches.push(batch);
            }
        }
        Ok(batches)
    }

    async fn part(
        &self,
        part: PartitionLocation,
    ) -> std::result::Result<datafusion::execution::SendableRecordBatchStream, Ending> {
        let layout = part.layout();
        let missing = || Ending::Lost("the scheduler does not say where the rows are".to_owned());
        let machine = part.executor_meta.ok_or_else(missing)?;
        let id = part.partition_id.ok_or_else(missing)?;
        let lost = |error: ballista_core::error::BallistaError| {
            Ending::Lost(format!("the executor at {}:{}: {error}", machine.host, machine.port))
        };
        let own = BallistaConfigGrpcEndpoint::new(self.credentials.for_ballista());
        let port = machine.port as u16;
        let client = BallistaClient::try_new(
            &machine.host,
            port,
            MESSAGE,
            false,
            Some(Arc::new(own)),
            2,
            1000,
            0,
            0,
        );
        let mut client = client.await.map_err(lost)?;
        let id = id.into();
        let rows = client.fetch_partition(&machine.id, &id, part.file_id, layout, true);
        rows.await.map_err(lost)
    }
}

async fn timely<T>(waited: impl Future<Output = T>) -> std::result::Result<T, Ending> {
    let late = || Ending::Lost("an executor does not send its rows".to_owned());
    tokio::time::timeout(SEND, waited).await.map_err(|_| late())
}

/// Hands a plan to the scheduler, which names the job.
async fn submit(
    scheduler: &mut Scheduler,
    plan: &[u8],
    session: &str,
) -> std::result::Result<String, Ending> {
    let mut request = Request::new(ExecuteQueryParams {
        session_id: session.to_owned(),
        settings: Vec::new(),
        operation_id: Uuid::new_v4().to_string(),
        query: Some(Query::LogicalPlan(plan.to_vec())),
    });
    insert_version_header(request.metadata_mut());
    match scheduler.execute_query(request).await?.into_inner().result {
        Some(Submitted::Success(job)) => Ok(job.job_id),
        Some(Submitted::Failure(why)) => Err(Ending::Final(Error::Question(match why.failure {
            Some(execute_query_failure_result::Failure::PlanParsingFailure(why)) => why,
            other => format!("{other:?}"),
        }))),
        None => Err(Ending::Lost("the scheduler gives no answer".to_owned())),
    }
}

/// Removes a job that was answered or given up from the scheduler.
async fn tidy(
    scheduler: &mut Scheduler,
    job: String,
    session: String,
    is_given_up: bool,
) -> std::result::Result<(), Status> {
    if is_given_up {
        scheduler.cancel_job(CancelJobParams { job_id: job.clone() }).await?;
    }
    scheduler.remove_session(RemoveSessionParams { session_id: session }).await?;
    let of = CleanJobDataParams { job_id: job, remove_stage_ids: Vec::new() };
    scheduler.clean_job_data(of).await?;
    Ok(())
}

#[async_trait]
impl Remote for Cluster {
    fn state(&self, runtime: Arc<RuntimeEnv>) -> SessionState {
        engine::state(engine::config(PARTS, &self.credentials), runtime)
    }

    fn least_rows(&self) -> u64 {
        self.least_rows
    }

    async fn answer(&self, plan: &LogicalPlan, most: usize) -> Result<Vec<RecordBatch>> {
        let node = LogicalPlanNode::try_from_logical_plan(plan, &Tables::default())?;
        let mut bytes = Vec::new();
        node.try_encode(&mut bytes)?;
        match self.attempt(&bytes, most, Duration::ZERO).await {
            Ok(batches) => return Ok(batches),
            Err(Ending::Final(error)) => return Err(error),
            Err(Ending::Lost(why) | Ending::Failed(why)) => {
                let why = printable(&short(&why));
                lwp_terminal::say!("lwp-fleet-node: {why}; asking once more");
            }
        }
        match self.attempt(&bytes, most, RETURN).await {
            Ok(batches) => Ok(batches),
            Err(Ending::Final(error)) => Err(error),
            Err(Ending::Failed(why)) => Err(failed(&why)),
            Err(Ending::Lost(why)) => Err(Error::Lost(why)),
        }
    }
}

/// The fault of a job that failed twice.
fn failed(why: &str) -> Error {
    if let Some(at) = why.find("damaged: ") {
        return Error::Engine(why[at..].lines().next().unwrap_or_default().to_owned());
    }
    // As the engine's own text begins, which is all that comes from another machine.
    if why.contains("Resources exhausted") {
        return Error::Memory;
    }
    if lwp_query::is_disk_full(why) {
        return Error::Disk;
    }
    Error::Engine(short(why))
}

/// The beginning of a reason: some of Ballista's have a plan in them.
fn short(why: &str) -> String {
    why.chars().take(LETTERS).collect()
}
