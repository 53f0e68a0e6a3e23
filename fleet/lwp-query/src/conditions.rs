//! Conditions on the columns that all rows of a recording share.
//!
//! Every row of a recording has its project, benchmark, commit and so on. So if a join pairs rows
//! of the same recording, a condition on such a column of one table holds for the other table too.
//! Files are sorted by these columns: most of the other table need not be read.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchemaRef, NullEquality, Result, TableReference};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, Filter, JoinType, LogicalPlan, Operator, TableScan,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use lwp_store::Kind;

use crate::table::KindTable;

/// The column that identifies a recording.
const RECORDING: &str = "recording";
/// The columns that are the same in all rows of a recording.
const SHARED: [&str; 6] = ["started", "project", "benchmark", "branch", "commit", "host"];
/// The rule that moves conditions to the tables.
const PUSH_DOWN: &str = "push_down_filter";

type Rule = Arc<dyn OptimizerRule + Send + Sync>;

/// The engine's rules, and the one that adds conditions on shared columns.
pub fn with_shared_conditions(mut rules: Vec<Rule>) -> Vec<Rule> {
    let at = rules.iter().position(|rule| rule.name() == PUSH_DOWN).unwrap_or(rules.len());
    rules.insert(at, Arc::new(SharedConditions));
    rules
}

/// Adds conditions on shared columns to every table of a join.
#[derive(Debug)]
struct SharedConditions;

impl OptimizerRule for SharedConditions {
    fn name(&self) -> &str {
        "shared_conditions"
    }

    // A condition that is added above a join must not be met again on the way down.
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Join(_)) {
            return Ok(Transformed::no(plan));
        }
        let mut joined = Joined::default();
        joined.collect(&plan);
        match conjunction(joined.missing()?) {
            Some(more) => {
                let filter = Filter::try_new(more, Arc::new(plan))?;
                Ok(Transformed::yes(LogicalPlan::Filter(filter)))
            }
            None => Ok(Transformed::no(plan)),
        }
    }
}

/// Tables under inner joins, and what is true for all rows that the joins leave.
#[derive(Default)]
struct Joined {
    tables: Vec<(TableReference, DFSchemaRef)>,
    /// Tables whose rows are of the same recording.
    pairs: Vec<(TableReference, TableReference)>,
    conditions: Vec<Expr>,
}

impl Joined {
    fn collect(&mut self, plan: &LogicalPlan) {
        match plan {
            LogicalPlan::Filter(filter) => {
                self.add(&filter.predicate);
                self.collect(&filter.input);
            }
            LogicalPlan::Join(join)
                if join.join_type == JoinType::Inner
                    && join.null_equality == NullEquality::NullEqualsNothing =>
            {
                join.on.iter().for_each(|(left, right)| self.equal(left, right));
                join.filter.iter().for_each(|filter| self.add(filter));
                self.collect(&join.left);
                self.collect(&join.right);
            }
            LogicalPlan::SubqueryAlias(alias) => {
                if matches!(alias.input.as_ref(), LogicalPlan::TableScan(scan) if shares(scan)) {
                    self.tables.push((alias.alias.clone(), Arc::clone(&alias.schema)));
                }
            }
            LogicalPlan::TableScan(scan) if shares(scan) => {
                self.tables.push((scan.table_name.clone(), Arc::clone(&scan.projected_schema)));
            }
            _ => (),
        }
    }

    fn add(&mut self, predicate: &Expr) {
        for condition in split_conjunction(predicate) {
            if let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition {
                self.equal(left, right);
            }
            self.conditions.push(condition.clone());
        }
    }

    fn equal(&mut self, left: &Expr, right: &Expr) {
        if let Some(pair) = recording_of(left).zip(recording_of(right)) {
            self.pairs.push(pair);
        }
    }

    /// The other tables whose rows are of the same recording as those of `table`.
    fn same_recording(&self, table: &TableReference) -> Vec<TableReference> {
        let mut found = vec![table.clone()];
        let mut next = 0;
        while let Some(one) = found.get(next).cloned() {
            for (left, right) in &self.pairs {
                for (from, to) in [(left, right), (right, left)] {
                    if *from == one && !found.contains(to) {
                        found.push(to.clone());
                    }
                }
            }
            next += 1;
        }
        found.split_off(1)
    }

    /// The conditions that hold for tables on which there are none yet.
    fn missing(&self) -> Result<Vec<Expr>> {
        let mut missing: Vec<Expr> = Vec::new();
        for condition in &self.conditions {
            let Some((table, names)) = self.subject(condition) else { continue };
            for other in self.same_recording(&table) {
                let schema = self.tables.iter().find(|(name, _)| *name == other);
                let has = |name: &String| {
                    schema.is_some_and(|(_, schema)| schema.has_column_with_unqualified_name(name))
                };
                if !names.iter().all(has) {
                    continue;
                }
                let moved = about(condition, &other)?;
                if !self.conditions.contains(&moved) && !missing.contains(&moved) {
                    missing.push(moved);
                }
            }
        }
        Ok(missing)
    }

    /// The table that a condition on nothing but shared columns is about, and these columns.
    fn subject(&self, condition: &Expr) -> Option<(TableReference, Vec<String>)> {
        let columns = condition.column_refs();
        let table = columns.iter().next()?.relation.clone()?;
        let is_shared = |column: &&Column| {
            column.relation.as_ref() == Some(&table) && SHARED.contains(&column.name.as_str())
        };
        let is_known = self.tables.iter().any(|(name, _)| *name == table);
        if !is_known || !columns.iter().all(is_shared) || !is_plain(condition) {
            return None;
        }
        Some((table, columns.iter().map(|column| column.name.clone()).collect()))
    }
}

/// The table whose recordings an expression names.
fn recording_of(expr: &Expr) -> Option<TableReference> {
    match expr {
        Expr::Column(column) if column.name == RECORDING => column.relation.clone(),
        _ => None,
    }
}

/// Returns true if an expression has the same value for the same columns.
fn is_plain(expr: &Expr) -> bool {
    let asks = expr.exists(|expr| {
        let subquery = matches!(
            expr,
            Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::ScalarSubquery(_)
                | Expr::OuterReferenceColumn(..)
        );
        Ok(subquery)
    });
    !expr.is_volatile() && asks.is_ok_and(|asks| !asks)
}

/// A condition on one table, about another one.
fn about(condition: &Expr, table: &TableReference) -> Result<Expr> {
    let moved = condition.clone().transform(|expr| {
        Ok(match expr {
            Expr::Column(column) => {
                Transformed::yes(Expr::Column(Column::new(Some(table.clone()), column.name)))
            }
            other => Transformed::no(other),
        })
    });
    Ok(moved?.data)
}

/// Returns true if a table's rows are those of recordings. A roll-up stands for several.
fn shares(scan: &TableScan) -> bool {
    let table = source_as_provider(&scan.source).ok();
    table.is_some_and(|table| {
        let table = (table.as_ref() as &dyn Any).downcast_ref::<KindTable>();
        table.is_some_and(|table| !matches!(table.kind(), Kind::Note | Kind::Rollup))
    })
}
