//! Tables of the store in plans that travel: a place and a kind, nothing else.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use ballista_core::serde::BallistaLogicalExtensionCodec;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result, TableReference, not_impl_err};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::logical_plan::LogicalExtensionCodec;
use lwp_query::{KindTable, Place, schema_of};
use lwp_store::Kind;

use crate::versions::{Version, Versions};

/// Writes and reads tables of the store in logical plans. A machine that only asks has no versions,
/// and reads none.
#[derive(Debug, Default)]
pub struct Tables {
    versions: Option<Versions>,
    ballista: BallistaLogicalExtensionCodec,
}

impl Tables {
    /// Tables that are read from `versions`.
    pub fn of(versions: Versions) -> Self {
        Self { versions: Some(versions), ..Self::default() }
    }
}

impl LogicalExtensionCodec for Tables {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[LogicalPlan],
        context: &TaskContext,
    ) -> Result<Extension> {
        self.ballista.try_decode(bytes, inputs, context)
    }

    fn try_encode(&self, node: &Extension, out: &mut Vec<u8>) -> Result<()> {
        self.ballista.try_encode(node, out)
    }

    fn try_decode_table_provider(
        &self,
        bytes: &[u8],
        _: &TableReference,
        _: SchemaRef,
        _: &TaskContext,
    ) -> Result<Arc<dyn TableProvider>> {
        let wrong = || DataFusionError::Plan("no table of a store".to_owned());
        let text = str::from_utf8(bytes).map_err(|_| wrong())?;
        let (kind, url) = text.split_once(' ').ok_or_else(wrong)?;
        let kind = Kind::of_word(kind).ok_or_else(wrong)?;
        let place = Place::parse(url).ok_or_else(wrong)?;
        let version = self.versions.as_ref().ok_or_else(wrong)?.version(&place)?;
        Ok(Arc::new(Table { kind, schema: schema_of(kind, &place), place, version }))
    }

    fn try_encode_table_provider(
        &self,
        name: &TableReference,
        table: Arc<dyn TableProvider>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let any = table.as_ref() as &dyn std::any::Any;
        let own = any.downcast_ref::<KindTable>().map(|table| (table.kind(), table.place()));
        let sent = any.downcast_ref::<Table>().map(|table| (table.kind, &table.place));
        match own.or(sent).filter(|(_, place)| place.is_shared()) {
            Some((kind, place)) => {
                out.extend_from_slice(kind.word().as_bytes());
                out.push(b' ');
                out.extend_from_slice(place.url().as_str().as_bytes());
                Ok(())
            }
            None => not_impl_err!("table {name} is on this machine alone"),
        }
    }
}

/// A table of a version that may not be open yet.
#[derive(Debug)]
struct Table {
    kind: Kind,
    place: Place,
    schema: SchemaRef,
    version: Version,
}

#[async_trait]
impl TableProvider for Table {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let snapshot = self.version.snapshot().await;
        let snapshot = snapshot.map_err(|error| DataFusionError::External(Box::new(error)))?;
        let table = KindTable::new(self.kind, snapshot.files_of(self.kind), &self.place);
        table.scan(state, projection, filters, limit).await
    }
}
