//! Ballista's scheduler as others reach it: it takes logical plans only, says how far a question
//! has got, and answers none that is spoilt.

use std::time::Duration;

use ballista_core::serde::protobuf::execute_query_params::Query;
use ballista_core::serde::protobuf::execute_query_result::Result as Submitted;
use ballista_core::serde::protobuf::job_status::Status as Job;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpc;
use ballista_core::serde::protobuf::*;
use ballista_scheduler::scheduler_server::SchedulerServer;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tonic::{Request, Response, Status, async_trait};

use crate::connections::Peer;
use crate::jobs::{Jobs, LOST, Spoilt};

/// The entry of an answer's metadata with the number of a question's parts that are finished.
pub const FINISHED: &str = "lwp-finished";
/// The time after which nobody waits for an answer any more: whoever does asks about it all the
/// time.
const ABANDONED: Duration = Duration::from_secs(30);

type Ballista = SchedulerServer<LogicalPlanNode, PhysicalPlanNode>;

/// The scheduler.
#[derive(Clone)]
pub struct Watched {
    inner: Ballista,
    jobs: Jobs,
}

impl Watched {
    /// Watches a scheduler, whose connections report to `jobs`.
    pub fn new(inner: Ballista, jobs: Jobs) -> Self {
        let watched = Self { inner, jobs };
        tokio::spawn(watched.clone().give_up());
        watched
    }

    /// Gives up questions whose askers are gone.
    async fn give_up(self) {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            for job in self.jobs.abandoned(ABANDONED) {
                lwp_terminal::say!("lwp-fleet-node: nobody waits for question {job}");
                // It has been answered meanwhile, or ends now.
                let _ = self.inner.cancel_job(job.into()).await;
            }
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;

/// Names of questions become names of directories.
fn checked(job: &str) -> Result<(), Status> {
    match !job.is_empty() && job.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        true => Ok(()),
        false => Err(Status::invalid_argument("no question has such a name")),
    }
}

fn none<T>() -> Answer<T> {
    Err(Status::unimplemented("no such request"))
}

#[async_trait]
impl SchedulerGrpc for Watched {
    type ExecuteQueryPushStream = <Ballista as SchedulerGrpc>::ExecuteQueryPushStream;

    async fn poll_work(&self, mut request: Request<PollWorkParams>) -> Answer<PollWorkResult> {
        let peer = request.extensions().get::<Peer>().cloned();
        let report = request.get_mut();
        // Parts of a union have fewer operators to measure than the whole. Ballista drops the
        // report of a part whose number of measurements is another one than that of the part before
        // it, and then waits for the part for ever; it needs none.
        report.task_status.iter_mut().for_each(|task| task.metrics.clear());
        let executor = report.metadata.as_ref().map(|about| about.id.clone()).unwrap_or_default();
        if let Some(peer) = peer {
            peer.name(&executor);
        }
        self.jobs.hear(&executor, &report.task_status);
        let answer = self.inner.poll_work(request).await?;
        let tasks = answer.get_ref().tasks.iter();
        self.jobs.give(&executor, tasks.map(|task| task.job_id.as_str()));
        Ok(answer)
    }

    async fn execute_query(
        &self,
        mut request: Request<ExecuteQueryParams>,
    ) -> Answer<ExecuteQueryResult> {
        // A physical plan could name files of an executor, and settings could change how it reads.
        let params = request.get_mut();
        params.settings.clear();
        match params.query {
            Some(Query::LogicalPlan(_)) => {
                let answer = self.inner.execute_query(request).await?;
                if let Some(Submitted::Success(job)) = &answer.get_ref().result {
                    self.jobs.begin(&job.job_id);
                }
                Ok(answer)
            }
            _ => Err(Status::invalid_argument("a logical plan is wanted")),
        }
    }

    async fn get_job_status(
        &self,
        request: Request<GetJobStatusParams>,
    ) -> Answer<GetJobStatusResult> {
        let id = request.get_ref().job_id.clone();
        checked(&id)?;
        let finished = match self.jobs.ask(&id, LOST) {
            Ok(finished) => finished,
            Err(spoilt) => {
                // It stays spoilt, so that whatever becomes of it is no answer.
                let _ = self.inner.cancel_job(id.into()).await;
                return Err(match spoilt {
                    Spoilt::Machine(why) => Status::aborted(why),
                    Spoilt::Part(why) => Status::internal(why),
                });
            }
        };
        let mut answer = self.inner.get_job_status(request).await?;
        let status = answer.get_ref().status.as_ref().and_then(|status| status.status.as_ref());
        if matches!(status, Some(Job::Successful(_) | Job::Failed(_))) {
            self.jobs.end(&id);
        }
        answer.metadata_mut().insert(FINISHED, finished.into());
        Ok(answer)
    }

    async fn cancel_job(&self, request: Request<CancelJobParams>) -> Answer<CancelJobResult> {
        checked(&request.get_ref().job_id)?;
        self.jobs.end(&request.get_ref().job_id);
        SchedulerGrpc::cancel_job(&self.inner, request).await
    }

    async fn clean_job_data(
        &self,
        request: Request<CleanJobDataParams>,
    ) -> Answer<CleanJobDataResult> {
        checked(&request.get_ref().job_id)?;
        self.inner.clean_job_data(request).await
    }

    async fn remove_session(
        &self,
        request: Request<RemoveSessionParams>,
    ) -> Answer<RemoveSessionResult> {
        self.inner.remove_session(request).await
    }

    async fn register_executor(
        &self,
        _: Request<RegisterExecutorParams>,
    ) -> Answer<RegisterExecutorResult> {
        none()
    }

    async fn heart_beat_from_executor(
        &self,
        _: Request<HeartBeatParams>,
    ) -> Answer<HeartBeatResult> {
        none()
    }

    async fn update_task_status(
        &self,
        _: Request<UpdateTaskStatusParams>,
    ) -> Answer<UpdateTaskStatusResult> {
        none()
    }

    async fn create_update_session(
        &self,
        _: Request<CreateUpdateSessionParams>,
    ) -> Answer<CreateUpdateSessionResult> {
        none()
    }

    async fn execute_query_push(
        &self,
        _: Request<ExecuteQueryParams>,
    ) -> Answer<Self::ExecuteQueryPushStream> {
        none()
    }

    async fn get_job_metrics(
        &self,
        _: Request<GetJobMetricsParams>,
    ) -> Answer<GetJobMetricsResult> {
        none()
    }

    async fn executor_stopped(
        &self,
        _: Request<ExecutorStoppedParams>,
    ) -> Answer<ExecutorStoppedResult> {
        none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_questions_name_no_other_directory() {
        assert!(checked("038G9ZFR2T000").is_ok());
        for name in ["", ".", "..", "../x", "a/b", "/"] {
            assert!(checked(name).is_err(), "{name}");
        }
    }
}
