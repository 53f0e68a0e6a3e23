//! Flame graphs of a filter: what many recordings did together.
//!
//! Exact recordings have calls and no stacks: contexts are inferred from the sums of their calls,
//! as for a single recording. Sampled ones have stacks. The two are never in one picture.

use std::collections::HashMap;

use lwp_profile::{
    Builder, CallKind, Event, Frame, Function, FunctionId, Location, LocationId, Mode, Module,
    ModuleId, Origin, Profile, StackKey, Thread, Tree, Values,
};
use lwp_report::flame::{self, Before, Graph, Style};
use lwp_store::COUNTS;

use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::measure::Measure;
use crate::session::{Rows, Session};

/// The most edges, or stacks, of a picture: those with the greatest counts.
const MOST: usize = 200_000;

/// A picture to draw.
#[derive(Clone, Debug)]
pub struct Picture<'a> {
    /// The recordings that it shows.
    pub filter: &'a Filter,
    /// The recordings that its colours compare with.
    pub baseline: Option<&'a Filter>,
    /// The event that widths stand for.
    pub event: &'a str,
    /// True for a page, false for an SVG picture.
    pub page: bool,
}

/// Draws a flame graph.
///
/// # Errors
///
/// If the store cannot be read, or no recording that a filter chooses has the event.
pub async fn flame(session: &Session, asked: &Picture<'_>) -> Result<String> {
    let profile = profile(session, asked.filter, asked.event).await?;
    let tree = Tree::of(&profile, 0);
    let earlier = match asked.baseline {
        Some(filter) => Some(self::profile(session, filter, asked.event).await?),
        None => None,
    };
    let earlier = earlier.map(|profile| (Tree::of(&profile, 0), profile));
    let before = earlier.as_ref().map(|(tree, earlier)| Before {
        profile: earlier,
        tree,
        same: same(earlier, &profile),
    });
    let title = match asked.baseline {
        Some(baseline) => format!("{}, compared with {}", named(asked.filter), named(baseline)),
        None => named(asked.filter),
    };
    let style = Style { title, ..Style::default() };
    let graph = Graph::new(before.as_ref(), (&profile, &tree), asked.event, &style);
    Ok(if asked.page { flame::html(&graph, &style) } else { flame::svg(&graph, &style) })
}

fn named(filter: &Filter) -> String {
    let text = filter.text();
    if text.is_empty() { "all recordings".to_owned() } else { text }
}

/// The function of `after` that each one of `before` is compared with: the one with the same names.
fn same(before: &Profile, after: &Profile) -> Vec<Option<FunctionId>> {
    let key = |profile: &Profile, index: usize| {
        let function = &profile.functions[index];
        (profile.modules[function.module.index()].path.clone(), function.name.clone())
    };
    let known: HashMap<_, FunctionId> = (0..after.functions.len())
        .map(|index| (key(after, index), FunctionId(index as u32)))
        .collect();
    (0..before.functions.len()).map(|index| known.get(&key(before, index)).copied()).collect()
}

/// The sums of all recordings that a filter chooses, as one profile of one event.
async fn profile(session: &Session, filter: &Filter, event: &str) -> Result<Profile> {
    let measure = Measure::new(event, filter);
    let mode = if measure.is_exact() { Mode::Exact } else { Mode::Sampled };
    made(session, filter, mode, &[event.to_owned()]).await
}

/// The sums of all recordings that a filter chooses, as one profile of all their events. Exact
/// recordings and sampled ones are never added up: sampled ones are taken where the filter asks for
/// them, or chooses no others.
///
/// # Errors
///
/// If the store cannot be read, or no recording is chosen.
pub async fn sums(session: &Session, filter: &Filter) -> Result<Profile> {
    let has = |table: &str, column: &str| {
        format!("select distinct {column} as e from {table} where {}", filter.sql())
    };
    let exact = session.ask(&has("recordings", "mode")).await?.texts("e").contains(&"exact".into());
    if exact && !filter.is_sampled() {
        let events: Vec<String> = COUNTS.iter().map(|column| column.replace('_', "-")).collect();
        return made(session, filter, Mode::Exact, &events).await;
    }
    let mut events = session.ask(&has("totals", "event")).await?.texts("e");
    events.sort_unstable();
    if events.is_empty() {
        return Err(crate::report::nothing(session, filter, "any").await?);
    }
    made(session, filter, Mode::Sampled, &events).await
}

async fn made(
    session: &Session,
    filter: &Filter,
    mode: Mode,
    events: &[String],
) -> Result<Profile> {
    let event = |name: &String| Event {
        name: name.clone(),
        interval: (mode == Mode::Sampled).then_some(1),
        ..Event::default()
    };
    let builder = Builder::new(named(filter), mode, events.iter().map(event).collect());
    let mut making = Making::new(builder, events.len());
    let chosen = &filter.narrowed(session).await?;
    let measures: Vec<Measure> = events.iter().map(|event| Measure::new(event, filter)).collect();
    if mode == Mode::Exact {
        making.functions(session, chosen, &measures).await?;
        making.calls(session, chosen).await?;
    } else {
        making.names(session, chosen).await?;
        for (index, measure) in measures.iter().enumerate() {
            making.stacks(session, chosen, (measure, index)).await?;
        }
    }
    if making.is_empty {
        let first = events.first().map_or("", String::as_str);
        return Err(crate::report::nothing(session, filter, first).await?);
    }
    Ok(making.builder.finish())
}

/// A profile in the making, whose functions have one location each.
struct Making {
    builder: Builder,
    modules: HashMap<String, ModuleId>,
    places: HashMap<i64, LocationId>,
    /// Modules and names of functions, by their keys.
    names: HashMap<i64, (String, String)>,
    events: usize,
    is_empty: bool,
}

impl Making {
    fn new(builder: Builder, events: usize) -> Self {
        Self {
            builder,
            modules: HashMap::new(),
            places: HashMap::new(),
            names: HashMap::new(),
            events,
            is_empty: true,
        }
    }

    fn place(&mut self, key: i64, module: &str, name: &str) -> LocationId {
        if let Some(place) = self.places.get(&key) {
            return *place;
        }
        let module = match self.modules.get(module) {
            Some(known) => *known,
            None => {
                let id =
                    self.builder.module(Module { path: module.to_owned(), ..Module::default() });
                self.modules.insert(module.to_owned(), id);
                id
            }
        };
        // Keys are unique, and so no two functions have one address.
        let address = key.cast_unsigned();
        let function = self.builder.function(Function {
            module,
            name: name.to_owned(),
            address,
            origin: Origin::Symbol,
            ..Function::default()
        });
        let frames = vec![Frame { function, ..Frame::default() }].into();
        let place =
            self.builder.location(Location { module, address, frames, ..Location::default() });
        self.places.insert(key, place);
        place
    }

    /// The place of a function by its key alone.
    fn place_of(&mut self, key: i64) -> LocationId {
        let (module, name) = match self.names.get(&key) {
            Some(names) => names.clone(),
            None => (String::new(), format!("[{key:x}]")),
        };
        self.place(key, &module, &name)
    }

    fn sample(&mut self, stack: StackKey, values: &Values) {
        let thread = self.builder.thread(Thread::default());
        let stack = self.builder.stack(stack);
        self.builder.sample(thread, stack, values);
        self.is_empty = false;
    }

    /// Adds functions with their counts of all events, which one question asks for.
    async fn functions(
        &mut self,
        session: &Session,
        filter: &Filter,
        measures: &[Measure],
    ) -> Result<()> {
        let sums = measures.iter().enumerate();
        let sums = sums.map(|(index, measure)| format!("sum({}) as v{index}", measure.value()));
        let sql = format!(
            "select func, max(module) as module, max(function) as function, {} \
             from functions where {} group by func",
            sums.collect::<Vec<_>>().join(", "),
            filter.sql()
        );
        let rows = session.ask(&sql).await?;
        let keys = rows.longs("func");
        self.remember(&rows);
        let columns: Vec<Vec<Option<i64>>> =
            (0..measures.len()).map(|index| rows.longs(&format!("v{index}"))).collect();
        for row in 0..rows.len() {
            // Functions of sampled recordings have no counts.
            if columns.iter().all(|column| column[row].is_none()) {
                continue;
            }
            let mut values = Values::zero(self.events);
            for (value, column) in values.0.iter_mut().zip(&columns) {
                *value = u64::try_from(column[row].unwrap_or(0)).unwrap_or(0);
            }
            let place = self.place_of(keys[row].unwrap_or(0));
            self.sample([place].into_iter().collect(), &values);
        }
        Ok(())
    }

    fn knows(&self, keys: &[Option<i64>]) -> bool {
        keys.iter().flatten().all(|key| self.names.contains_key(key))
    }

    /// Keeps the names of functions that an answer has.
    fn remember(&mut self, rows: &Rows) {
        let names = rows.texts("module").into_iter().zip(rows.texts("function"));
        let keys = rows.longs("func").into_iter().flatten();
        self.names.extend(keys.zip(names));
    }

    /// Adds calls. Their names are those of functions: to find them in the rows of calls takes three
    /// times as long as to add up the calls.
    async fn calls(&mut self, session: &Session, filter: &Filter) -> Result<()> {
        let sql = format!(
            "select func, callee, call_kind, sum(entered) as n from calls where {} \
             group by func, callee, call_kind \
             order by n desc, func, callee, call_kind limit {MOST}",
            filter.sql()
        );
        let rows = session.ask(&sql).await?;
        let (from, to, counts) = (rows.longs("func"), rows.longs("callee"), rows.longs("n"));
        let kinds = rows.texts("call_kind");
        if !self.knows(&from) || !self.knows(&to) {
            self.names_of_calls(session, filter).await?;
        }
        for row in 0..rows.len() {
            let caller = from[row].map(|key| self.place_of(key));
            let callee = self.place_of(to[row].unwrap_or(0));
            let callee = self.builder.location_at(callee).function();
            let kind = lwp_facts::call_kind(&kinds[row]).unwrap_or(CallKind::Direct);
            let count = u64::try_from(counts[row].unwrap_or(0)).unwrap_or(0);
            self.builder.call(caller, callee, kind, count);
        }
        Ok(())
    }

    /// Finds the names of functions whose own rows have expired.
    async fn names_of_calls(&mut self, session: &Session, filter: &Filter) -> Result<()> {
        let chosen = filter.sql();
        let sql = format!(
            "select func, max(module) as module, max(function) as function from \
             (select func, module, function from calls where {chosen} union all \
             select callee, callee_module, callee_function from calls where {chosen}) \
             where func is not null group by func"
        );
        self.remember(&session.ask(&sql).await?);
        Ok(())
    }

    /// Makes the functions of stacks, by their names.
    async fn names(&mut self, session: &Session, filter: &Filter) -> Result<()> {
        let sql = format!(
            "select func, max(module) as module, max(function) as function from functions where {} group by func",
            filter.sql()
        );
        let rows = session.ask(&sql).await?;
        let (keys, modules, names) =
            (rows.longs("func"), rows.texts("module"), rows.texts("function"));
        for row in 0..rows.len() {
            self.place(keys[row].unwrap_or(0), &modules[row], &names[row]);
        }
        Ok(())
    }

    async fn stacks(
        &mut self,
        session: &Session,
        filter: &Filter,
        (measure, event): (&Measure, usize),
    ) -> Result<()> {
        let sql = format!(
            "select frames, v from (select stack, first_value(frames) as frames, sum({}) as v \
             from stacks where {} and {} group by stack) order by v desc limit {MOST}",
            measure.value(),
            measure.condition(),
            filter.sql()
        );
        let rows = session.ask(&sql).await?;
        let (stacks, values) = (rows.lists("frames"), rows.longs("v"));
        for (frames, value) in stacks.iter().zip(values) {
            // Rows have the outermost frame first, profiles the innermost.
            let places = frames.iter().rev().map(|key| self.place(*key, "", &format!("[{key:x}]")));
            let places: StackKey = places.collect();
            if places.is_empty() {
                return Err(Error::Engine("a stack has no frames".to_owned()));
            }
            let mut values = Values::zero(self.events);
            values.0[event] = u64::try_from(value.unwrap_or(0)).unwrap_or(0);
            self.sample(places, &values);
        }
        Ok(())
    }
}
