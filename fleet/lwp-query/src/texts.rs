//! Texts that repeat are looked at once.
//!
//! A column of texts comes as views into its file's dictionary, so equal texts of a batch mostly
//! have equal views. `like` and `count(distinct …)` of the engine read the text of every row; here
//! they get the rows with different views only.

use std::any::Any;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewArray, UInt32Array};
use arrow::compute::kernels::comparison::like;
use arrow::compute::take;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::functions_aggregate::count::{Count, count_udaf};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Expr, ExprSchemable, Like,
    LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The bits of a slot's number.
const SLOT_BITS: u32 = 10;
/// The views of no text, whose length would be too large: of an empty slot, and of null.
const EMPTY: u128 = u128::MAX;
const NULL: u128 = u128::MAX - 1;

/// Rows with different texts. A text may be among them more than once.
struct Different {
    /// The first row of each text.
    rows: Vec<u32>,
    /// For every row, the index in `rows` of the one with its text.
    index: Vec<u32>,
}

impl Different {
    fn of(texts: &StringViewArray) -> Self {
        let mut slots = vec![(EMPTY, 0); 1 << SLOT_BITS];
        let (mut rows, mut index) = (Vec::new(), Vec::with_capacity(texts.len()));
        let nulls = texts.nulls().filter(|nulls| nulls.null_count() > 0);
        for (row, view) in texts.views().iter().enumerate() {
            let is_null = nulls.is_some_and(|nulls| nulls.is_null(row));
            let view = if is_null { NULL } else { *view };
            let slot = &mut slots[slot(view)];
            if slot.0 != view {
                *slot = (view, rows.len() as u32);
                rows.push(row as u32);
            }
            index.push(slot.1);
        }
        Self { rows, index }
    }
}

fn slot(view: u128) -> usize {
    let mixed = ((view >> 64) as u64 ^ view as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - SLOT_BITS)) as usize
}

/// `texts like pattern`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LikeOnce {
    signature: Signature,
}

impl Default for LikeOnce {
    fn default() -> Self {
        let texts = vec![DataType::Utf8View, DataType::Utf8View];
        Self { signature: Signature::exact(texts, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for LikeOnce {
    fn name(&self) -> &str {
        "like"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(texts), ColumnarValue::Scalar(pattern)] => {
                let Different { rows, index } = Different::of(texts.as_string_view());
                let some = take(texts, &UInt32Array::from(rows), None)?;
                let fits = like(&some, &pattern.to_scalar()?)?;
                Ok(ColumnarValue::Array(take(&fits, &UInt32Array::from(index), None)?))
            }
            // A column that is the same in a whole file.
            [ColumnarValue::Scalar(text), ColumnarValue::Scalar(pattern)] => {
                let fits = like(&text.to_array()?, &pattern.to_scalar()?)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&fits, 0)?))
            }
            _ => internal_err!("like of texts and a pattern"),
        }
    }
}

/// `count(distinct texts)`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CountOnce(Arc<AggregateUDF>);

impl AggregateUDFImpl for CountOnce {
    // The engine's, so that the column is named as ever.
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, of: &[DataType]) -> Result<DataType> {
        self.0.return_type(of)
    }

    fn is_nullable(&self) -> bool {
        self.0.is_nullable()
    }

    fn default_value(&self, of: &DataType) -> Result<ScalarValue> {
        self.0.default_value(of)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.0.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(CountingOnce(self.0.accumulator(args)?)))
    }
}

/// The engine's count, which is given different texts.
#[derive(Debug)]
struct CountingOnce(Box<dyn Accumulator>);

impl Accumulator for CountingOnce {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(texts) = values.first().and_then(|values| values.as_string_view_opt()) else {
            return self.0.update_batch(values);
        };
        let rows = UInt32Array::from(Different::of(texts).rows);
        self.0.update_batch(&[take(texts, &rows, None)?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }
}

/// Replaces functions of the engine that look at every row's text.
#[derive(Debug)]
pub(crate) struct TextsOnce {
    like: ScalarUDF,
    count: Arc<AggregateUDF>,
}

impl Default for TextsOnce {
    fn default() -> Self {
        Self { like: LikeOnce::default().into(), count: Arc::new(CountOnce(count_udaf()).into()) }
    }
}

impl TextsOnce {
    /// A pattern that begins with a wildcard. Others leave out parts of files by their least and
    /// greatest texts, which the engine knows how to do.
    fn like(&self, expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
        match expr {
            Expr::Like(Like {
                negated,
                expr: texts,
                pattern,
                escape_char: None,
                case_insensitive: false,
            }) if is_texts(&texts, schema) && begins_with_wildcard(&pattern) => {
                let like = self.like.call(vec![*texts, *pattern]);
                Transformed::yes(if negated { Expr::Not(Box::new(like)) } else { like })
            }
            other => Transformed::no(other),
        }
    }

    fn count(&self, expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
        match expr {
            Expr::AggregateFunction(AggregateFunction { func, params })
                if params.distinct
                    && (func.inner().as_ref() as &dyn Any).is::<Count>()
                    && matches!(params.args.as_slice(), [texts] if is_texts(texts, schema)) =>
            {
                let func = Arc::clone(&self.count);
                Transformed::yes(Expr::AggregateFunction(AggregateFunction { func, params }))
            }
            other => Transformed::no(other),
        }
    }
}

fn is_texts(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr, Expr::Column(_))
        && expr.get_type(schema).is_ok_and(|of| of == DataType::Utf8View)
}

fn begins_with_wildcard(pattern: &Expr) -> bool {
    let text = match pattern {
        Expr::Literal(ScalarValue::Utf8View(Some(text)), _) => text,
        _ => return false,
    };
    text.starts_with(['%', '_'])
}

impl OptimizerRule for TextsOnce {
    fn name(&self) -> &str {
        "texts_once"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Filter(mut filter) => {
                let predicate = std::mem::take(&mut filter.predicate);
                let schema = filter.input.schema();
                let done = predicate.transform_up(|expr| Ok(self.like(expr, schema)))?;
                filter.predicate = done.data;
                let plan = LogicalPlan::Filter(filter);
                Ok(if done.transformed { Transformed::yes(plan) } else { Transformed::no(plan) })
            }
            LogicalPlan::Aggregate(mut aggregate) if aggregate.group_expr.is_empty() => {
                let mut changed = false;
                let schema = aggregate.input.schema();
                for expr in &mut aggregate.aggr_expr {
                    let all = std::mem::take(expr);
                    let done = all.transform_up(|expr| Ok(self.count(expr, schema)))?;
                    *expr = done.data;
                    changed |= done.transformed;
                }
                let plan = LogicalPlan::Aggregate(aggregate);
                Ok(if changed { Transformed::yes(plan) } else { Transformed::no(plan) })
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_the_text_of_the_row_that_stands_for_it() {
        let long = |n: usize| format!("a text that is longer than a view: {n}");
        let texts = (0..5000).map(|n| match n % 7 {
            0 => None,
            1 => Some(String::new()),
            2 => Some("short".to_owned()),
            _ => Some(long(n % 3000)),
        });
        let texts: StringViewArray = texts.collect();
        let Different { rows, index } = Different::of(&texts);
        let text = |row: usize| texts.is_valid(row).then(|| texts.value(row));
        for (row, index) in index.iter().enumerate() {
            assert_eq!(text(row), text(rows[*index as usize] as usize), "{row}");
        }
        let same: StringViewArray = vec![Some("x"); 100].into_iter().collect();
        assert_eq!(Different::of(&same).rows, [0]);
        assert!(Different::of(&StringViewArray::new_null(0)).rows.is_empty());
    }
}
