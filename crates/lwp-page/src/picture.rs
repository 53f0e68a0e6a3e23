//! Contexts laid out as boxes: what the flame graph draws, and the call tree lists.

use std::sync::Arc;

use lwp_profile::{FunctionId, Tree};
use lwp_report::flame::{self, Graph, Layout, ROOT, Side};

use crate::key::Key;
use crate::picked::{By, Group, Shape, Shaped};
use crate::request::{Base, Query, Request};
use crate::subject::Subject;

/// Boxes with what stands for them in addresses.
#[derive(Debug)]
pub struct Picture {
    /// The boxes, outer ones before inner ones.
    pub graph: Graph,
    /// The key of the context of each box.
    pub keys: Vec<Key>,
    /// The function of each box, where it is one of the subject's.
    pub functions: Vec<Option<FunctionId>>,
    /// Number of boxes around the one that is zoomed to; they come first.
    pub outer: usize,
}

/// The shape that an address asks for.
pub fn shape(query: &Query) -> Shape {
    let by = match query.get("by") {
        "process" => By::Process,
        "thread" => By::Thread,
        "language" => By::Language,
        _ => By::Function,
    };
    Shape { inverted: query.is_on("inv"), folded: query.is_on("fold"), by }
}

/// Numbers of names: those of the subject's functions, then of those that only the other has, then
/// of groups.
struct Numbers<'a> {
    request: &'a Request,
    /// By function and group of the subject.
    here: Vec<u32>,
    /// By function and group of the subject compared with.
    there: Vec<u32>,
    groups: Vec<String>,
}

impl<'a> Numbers<'a> {
    fn new(request: &'a Request, here: &Shaped, there: Option<(&Base, &Shaped)>) -> Self {
        let own = request.subject.keys.len() as u32;
        let other = there.map_or(0, |((base, _), _)| base.keys.len() as u32);
        let mut groups: Vec<String> = here.groups.iter().map(|group| group.name.clone()).collect();
        let mut group = |group: &Group| {
            let at = groups.iter().position(|known| *known == group.name).unwrap_or_else(|| {
                groups.push(group.name.clone());
                groups.len() - 1
            });
            own + other + at as u32
        };
        let mut numbers: Vec<u32> = (0..own).collect();
        numbers.extend(here.groups.iter().map(&mut group));
        let mut elsewhere = Vec::new();
        if let Some(((base, _), shaped)) = there {
            let place = |(index, key): (usize, &Key)| {
                let same = request.subject.functions.get(key);
                same.map_or(own + index as u32, |function| function.0)
            };
            elsewhere.extend(base.keys.iter().enumerate().map(place));
            elsewhere.extend(shaped.groups.iter().map(group));
        }
        Self { request, here: numbers, there: elsewhere, groups }
    }

    fn own(&self) -> usize {
        self.request.subject.keys.len()
    }

    /// The trees of groups with the numbers of their names; `numbers` are `here` or `there`.
    fn groups<'s>(shaped: &'s Shaped, numbers: &[u32]) -> Vec<(u32, &'s Tree)> {
        let functions = numbers.len().saturating_sub(shaped.groups.len());
        let trees = shaped.groups.iter().map(|group| &group.tree);
        numbers[functions..].iter().copied().zip(trees).collect()
    }

    /// The subject of a name, and its number there; the number of a group where it is neither's.
    fn place(&self, number: u32) -> Result<(&Subject, usize), usize> {
        let index = number as usize;
        let base = self.request.base.as_ref().map(|(base, _)| base);
        let others = base.map_or(0, |base| base.keys.len());
        match index.checked_sub(self.own()) {
            None => Ok((&self.request.subject, index)),
            Some(index) => match base.filter(|_| index < others) {
                Some(base) => Ok((base, index)),
                None => Err(index - others),
            },
        }
    }

    fn name(&self, number: u32) -> flame::Name {
        match self.place(number) {
            Ok((subject, index)) => {
                let label = &subject.labels[index];
                (label.name.clone(), label.module.clone())
            }
            Err(group) => (self.groups.get(group).cloned().unwrap_or_default(), String::new()),
        }
    }

    fn key(&self, number: u32) -> Key {
        match self.place(number) {
            Ok((subject, index)) => subject.keys[index],
            Err(group) => Key::of(&[self.groups.get(group).map_or("", String::as_str)]),
        }
    }
}

impl Picture {
    /// The picture of what `request` asks for, without boxes below `least` of the whole.
    pub fn new(request: &Request, least: f64) -> Self {
        let shape = shape(&request.query);
        let here = request.picked.shaped(&request.subject, shape);
        let there: Option<(&Base, Arc<Shaped>)> =
            request.base.as_ref().map(|base| (base, base.1.shaped(&base.0, shape)));
        let with = there.as_ref().map(|(base, shaped)| (*base, &**shaped));
        let numbers = Numbers::new(request, &here, with);
        let zoom = Key::parse(request.query.get("at"))
            .and_then(|key| path(&here, &numbers, key))
            .unwrap_or_default();
        let name = |number| numbers.name(number);
        let layout = Layout { names: &name, zoom: &zoom, least };
        let groups = Numbers::groups(&here, &numbers.here);
        let after = Side { tree: &here.tree, numbers: &numbers.here, groups: &groups };
        let old = there.as_ref().map(|(_, shaped)| Numbers::groups(shaped, &numbers.there));
        let before = there.as_ref().zip(old.as_deref()).map(|((_, shaped), groups)| Side {
            tree: &shaped.tree,
            numbers: &numbers.there,
            groups,
        });
        let graph = Graph::laid(after, before, request.event_name(), &layout);
        let keys = keys(&graph, &numbers);
        let function = |number: u32| {
            (number != ROOT && (number as usize) < numbers.own()).then_some(FunctionId(number))
        };
        let functions = graph.boxes.iter().map(|one| function(one.number)).collect();
        Self { keys, functions, outer: zoom.len(), graph }
    }
}

/// The key of each box: that of the box around it, and its own name's.
fn keys(graph: &Graph, numbers: &Numbers<'_>) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::with_capacity(graph.boxes.len());
    let mut around: Vec<Key> = Vec::new();
    for one in &graph.boxes {
        around.truncate(one.depth);
        let key = match around.last() {
            None => Key::ROOT,
            Some(outer) => outer.then(numbers.key(one.number)),
        };
        around.push(key);
        keys.push(key);
    }
    keys
}

/// The names from the outermost one to the context with this key.
fn path(shaped: &Shaped, numbers: &Numbers<'_>, wanted: Key) -> Option<Vec<u32>> {
    let groups = Numbers::groups(shaped, &numbers.here);
    if groups.is_empty() {
        return path_in(&shaped.tree, numbers, Key::ROOT, wanted);
    }
    groups.into_iter().find_map(|(number, tree)| {
        let around = Key::ROOT.then(numbers.key(number));
        let inner = match around == wanted {
            true => Some(Vec::new()),
            false => path_in(tree, numbers, around, wanted),
        };
        Some([&[number], &inner?[..]].concat())
    })
}

/// The path to the context with the key `wanted`, in a tree inside the context with the key
/// `around`.
fn path_in(tree: &Tree, numbers: &Numbers<'_>, around: Key, wanted: Key) -> Option<Vec<u32>> {
    let total = tree.root().total;
    // Links lead to what is seen: contexts of hardly anything are looked at last.
    let least = [total / 2_000, total / 200_000, 1];
    let found = least
        .into_iter()
        .find_map(|least| context(tree, numbers, (around, wanted), least.max(1)))?;
    let outwards = std::iter::successors(Some(found), |node| Some(tree.caller(*node)));
    let functions = outwards.take_while(|node| *node != 0).map(|node| tree.node(node).function);
    let mut path: Vec<u32> = functions.map(|function| numbers.here[function.index()]).collect();
    path.reverse();
    Some(path)
}

/// The number of the context with the key `wanted`, among those of at least `least`; the root has
/// the key `around`.
fn context(
    tree: &Tree,
    numbers: &Numbers<'_>,
    (around, wanted): (Key, Key),
    least: u64,
) -> Option<usize> {
    let mut waiting = vec![(0, around)];
    while let Some((node, key)) = waiting.pop() {
        if node > 0 && key == wanted {
            return Some(node);
        }
        let seen = tree.called(node).filter(|inner| tree.total(*inner) >= least);
        waiting.extend(seen.map(|inner| {
            let number = numbers.here[tree.shape().functions()[inner].index()];
            (inner, key.then(numbers.key(number)))
        }));
    }
    None
}
