//! One function's source and instructions, side by side.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use lwp_profile::{FunctionId, Origin};
use lwp_report::annotate::{self, Line, Listing, Options, Sources};
use lwp_report::number::{grouped, percent};
use maud::{Markup, html};

use crate::cells::{self, Sure, badge, change, count, heat, own_is, text};
use crate::picked::Picked;
use crate::request::{Request, View};
use crate::subject::Subject;

/// Lines of source around what was executed.
const AROUND: u32 = 4;
/// Longest span of source lines without counts that is shown.
const LONGEST: u32 = 30;
/// Hottest lines that can be gone to.
const HOTTEST: usize = 10;
/// Most instructions of a page.
const MOST: usize = 20_000;

/// The source files of a subject.
pub struct Lines<'a>(pub &'a Subject);

impl std::fmt::Debug for Lines<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lines")
    }
}

impl Sources for Lines<'_> {
    fn line(&mut self, file: &str, line: u32) -> Option<String> {
        let mut sources = self.0.of.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.as_mut()?.line(file, line)
    }

    fn doubt(&mut self, file: &str) -> Option<String> {
        let mut sources = self.0.of.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.as_mut()?.doubt(file)
    }
}

/// A line of source, by file and number.
type Place = (String, u32);

/// Sum of the counts of a line's instructions.
#[derive(Clone, Debug, Default)]
struct Sum {
    count: u64,
    /// Of the event that is told beside it.
    beside: u64,
    text: Option<String>,
    /// The first instruction's row.
    first: usize,
}

/// A function's listing with sums of its source lines.
struct Code {
    listing: Listing,
    sums: BTreeMap<Place, Sum>,
    /// The source line of each row of the listing.
    places: Vec<Option<Place>>,
    /// The greatest count of an instruction, and of a line.
    greatest: (u64, u64),
}

impl Code {
    fn of(subject: &Subject, picked: &Picked, id: FunctionId, intel: bool) -> Self {
        let options = Options { event: picked.selection.event, intel };
        let mut listing =
            annotate::listing(subject.profile(), &picked.counts, id, options, &mut Lines(subject));
        listing.lines.truncate(MOST);
        let mut sums: BTreeMap<Place, Sum> = BTreeMap::new();
        let mut places = Vec::with_capacity(listing.lines.len());
        let mut now: Option<Place> = None;
        let mut greatest = 0;
        for (row, line) in listing.lines.iter().enumerate() {
            match line {
                Line::Source { file, line, text, .. } => {
                    let place = (file.clone(), *line);
                    sums.entry(place.clone()).or_insert_with(|| Sum {
                        text: text.clone(),
                        first: row + 1,
                        count: 0,
                        beside: 0,
                    });
                    now = Some(place);
                }
                Line::Instruction { count, beside, .. } => {
                    greatest = greatest.max(*count);
                    if let Some(sum) = now.as_ref().and_then(|place| sums.get_mut(place)) {
                        sum.count = sum.count.saturating_add(*count);
                        sum.beside = sum.beside.saturating_add(beside.unwrap_or(0));
                    }
                }
                Line::Within { .. } => now = None,
                Line::Gap { .. } => {}
            }
            places.push(now.clone());
        }
        let line = sums.values().map(|sum| sum.count).max().unwrap_or(0);
        Self { listing, sums, places, greatest: (greatest, line) }
    }

    /// Numbers of files, in the order of their names.
    fn file_number(&self, file: &str) -> usize {
        let mut files: Vec<&str> = self.sums.keys().map(|(file, _)| file.as_str()).collect();
        files.dedup();
        files.iter().position(|known| *known == file).unwrap_or(0)
    }

    /// The address within the page of a row of the listing; of an interpreted function, that of its
    /// line.
    fn place_of(&self, row: usize) -> String {
        match self.places[row].as_ref().filter(|_| self.listing.interpreted) {
            Some(place) => format!("#{}", self.anchor(place)),
            None => format!("#i{row}"),
        }
    }

    fn anchor(&self, (file, line): &Place) -> String {
        format!("s{}-{line}", self.file_number(file))
    }

    /// The rows with the greatest counts, the hottest first; of neighbours with one count only the
    /// first.
    fn hottest(&self) -> Vec<(usize, u64)> {
        let mut rows: Vec<(usize, u64)> = Vec::new();
        let mut before = 0;
        for (row, line) in self.listing.lines.iter().enumerate() {
            if let Line::Instruction { count, .. } = line {
                if *count > 0 && *count != before {
                    rows.push((row, *count));
                }
                before = *count;
            }
        }
        rows.sort_by_key(|(row, count)| (std::cmp::Reverse(*count), *row));
        // Hardly anything is not hot, however little there is.
        let least = self.greatest.0 / 100;
        rows.retain(|(_, count)| *count >= least);
        rows.truncate(HOTTEST);
        rows
    }
}

/// The view.
pub fn body(request: &Request) -> Markup {
    let Some(id) = request.function() else {
        return html! { p.none { "No function was executed." } };
    };
    let intel = request.query.get("syntax") == "intel";
    let code = Code::of(&request.subject, &request.picked, id, intel);
    let before = request.base.as_ref().zip(request.in_base(id));
    let before = before.map(|((base, picked), id)| Code::of(base, picked, id, intel));
    let share = percent(code.listing.total as f64, code.listing.whole);
    html! {
        h1.function { (text(&code.listing.name)) small { (grouped(code.listing.total)) " " (text(&code.listing.event)) ", " (share) " of the whole " (badge(own_is(request))) } }
        p.where {
            span.module { (text(&code.listing.module)) } " · "
            a href=(request.function_link(View::Calls, id)) { "callers and callees" }
            @if !code.listing.interpreted {
                " · "
                a.switch href=(request.here(&[("syntax", if intel { "" } else { "intel" })])) role="button" aria-pressed=(intel) { "Intel's syntax" }
            }
        }
        @for doubt in &code.listing.doubts { p.doubt { "Warning: " (text(doubt)) } }
        (hottest(&code))
        // What an interpreter executes has lines, and no instructions of its own.
        @let bare = !code.listing.interpreted && code.sums.values().all(|sum| sum.text.is_none());
        div.sides.bare[bare].alone[code.listing.interpreted] {
            section.source { (source(request, &code, before.as_ref())) }
            @if !code.listing.interpreted {
                section.assembly { (assembly(request, &code, before.as_ref())) }
            }
        }
        (legend(request, &code))
    }
}

fn hottest(code: &Code) -> Markup {
    let rows = code.hottest();
    html! {
        @if !rows.is_empty() {
            p.hottest { "Hottest: "
                @for (index, (row, count)) in rows.iter().enumerate() {
                    @let share = percent(*count as f64, code.listing.total);
                    a href=(code.place_of(*row)) data-hot=(index) title=(grouped(*count)) { (share) } " "
                }
            }
        }
    }
}

/// Source lines file by file, with some around those that were executed.
fn source(request: &Request, code: &Code, before: Option<&Code>) -> Markup {
    let mut files: Vec<(&str, u64)> = Vec::new();
    for ((file, _), sum) in &code.sums {
        match files.last_mut().filter(|last| last.0 == file) {
            Some(last) => last.1 += sum.count,
            None => files.push((file, sum.count)),
        }
    }
    // The function's own file comes first, then those that most was inlined from.
    let own = request
        .function()
        .map(|id| request.subject.profile().function(id).file.clone())
        .unwrap_or_default();
    files.sort_by_key(|(file, sum)| (*file != own, std::cmp::Reverse(*sum)));
    html! {
        h2 { "Source" }
        @if files.is_empty() { p.none { (without_lines(request)) } }
        @for (file, sum) in &files {
            h3.file { (text(file)) small { (percent(*sum as f64, code.listing.total)) } }
            (file_lines(request, code, before, file))
        }
    }
}

/// Says why there are no lines.
fn without_lines(request: &Request) -> &'static str {
    let origin = request.function().map(|id| request.subject.profile().function(id).origin);
    let module = request.function().map(|id| request.subject.profile().module_of(id));
    if module.is_some_and(|module| module.interpreted().is_some()) {
        return "Which of its lines took how much is known of samples only: lwp record -c 100K.";
    }
    match origin {
        Some(Origin::Generated) => {
            "The program generated this code while it ran, and did not say which lines it is from."
        }
        Some(Origin::Stub) => {
            "The linker made this code: it leads to a function of another module."
        }
        _ => {
            "No debug information says which lines these instructions are from. Compilers write it \
             with -g."
        }
    }
}

fn file_lines(request: &Request, code: &Code, before: Option<&Code>, file: &str) -> Markup {
    let executed: Vec<u32> =
        code.sums.keys().filter(|place| place.0 == file).map(|place| place.1).collect();
    let mut lines = Vec::new();
    for (index, &line) in executed.iter().enumerate() {
        let last = index.checked_sub(1).map(|index| executed[index]);
        match last {
            Some(last) if line - last <= LONGEST => lines.extend(last + 1..line),
            _ => lines.extend(line.saturating_sub(AROUND).max(1)..line),
        }
        lines.push(line);
    }
    let end = executed.last().copied().unwrap_or(0);
    lines.extend(end.saturating_add(1)..=end.saturating_add(AROUND));
    let mut sources = Lines(&request.subject);
    let readable = executed.iter().any(|line| code.sums[&(file.to_owned(), *line)].text.is_some());
    // Behind the end of the file there are no lines.
    lines.retain(|line| {
        executed.binary_search(line).is_ok() || readable && sources.line(file, *line).is_some()
    });
    html! {
        @if !readable { p.none { "This file cannot be read here: lines are known by number. `lwp archive` keeps sources with a recording." } }
        table.code {
            @if let Some(beside) = &code.listing.beside {
                thead { tr { th.num { "%" } th.num { (text(&code.listing.event)) }
                    th.num { (text(beside)) }
                    @if before.is_some() { th.num { "Change" } } th { } th { "line" } } }
            }
            tbody {
            @for (index, &line) in lines.iter().enumerate() {
                @let place = (file.to_owned(), line);
                @let sum = code.sums.get(&place);
                @if index > 0 && line > lines[index - 1] + 1 { tr.gap { td colspan="6" { "⋯" } } }
                @let heat = heat(sum.map_or(0, |sum| sum.count), code.greatest.1);
                tr id=(code.anchor(&place)) class={ "h" (heat) } data-line=[sum.map(|_| code.anchor(&place))] {
                    td.num { @if let Some(sum) = sum.filter(|sum| sum.count > 0) { (percent(sum.count as f64, code.listing.total)) } }
                    (count(sum.map_or(0, |sum| sum.count)))
                    @if code.listing.beside.is_some() { (count(sum.map_or(0, |sum| sum.beside))) }
                    @if let Some(before) = before { (change_of_line(code, before, &place)) }
                    td.no { @match sum.filter(|_| !code.listing.interpreted) {
                        Some(sum) => a href={ "#i" (sum.first) } { (line) },
                        None => (line),
                    } }
                    td.text { (source_text(sum.and_then(|sum| sum.text.clone()).or_else(|| sources.line(file, line)))) }
                }
            }
        } }
    }
}

fn source_text(line: Option<String>) -> String {
    text(&line.unwrap_or_default().replace('\t', "    "))
}

/// The change of a line: of the same number and text, or of the only one with its text.
fn change_of_line(code: &Code, before: &Code, place: &Place) -> Markup {
    let Some(sum) = code.sums.get(place) else { return html! { td {} } };
    let base = |file: &str| file.rsplit('/').next().unwrap_or(file).to_owned();
    let same_file = |other: &&Place| base(&other.0) == base(&place.0);
    let trimmed = |sum: &Sum| sum.text.as_deref().map(|text| text.trim().to_owned());
    let alike = |other: &&Place| trimmed(&before.sums[*other]) == trimmed(sum);
    let candidates: Vec<&Place> = before.sums.keys().filter(same_file).filter(alike).collect();
    let old = match candidates.as_slice() {
        [one] => Some(*one),
        several => several.iter().find(|other| other.1 == place.1).copied(),
    };
    let old = old.map_or(0, |old| before.sums[old].count);
    change(old, sum.count)
}

/// Instructions with counts, branches and arrows.
fn assembly(request: &Request, code: &Code, before: Option<&Code>) -> Markup {
    let exact = code.listing.exact;
    // Addresses are the same things only in the same build.
    let old = before.filter(|_| same_build(request));
    let counts: BTreeMap<u64, u64> = old
        .into_iter()
        .flat_map(|old| &old.listing.lines)
        .filter_map(|line| match line {
            Line::Instruction { address, count, .. } => Some((*address, *count)),
            _ => None,
        })
        .collect();
    html! {
        h2 { "Instructions" }
        @if before.is_some() && old.is_none() { p.none { "The other recording has another build of this module: instructions cannot be compared, lines can." } }
        table.code.asm {
            thead { tr { th.num { "%" } th.num { (text(&code.listing.event)) }
                @if let Some(beside) = &code.listing.beside { th.num { (text(beside)) } }
                @if old.is_some() { th.num { "Change" } }
                @if exact { th.num title="Of a conditional branch: how often it was taken" { "taken" } }
                th.num { "address" } th { } th { "instruction" } } }
            tbody {
                @for (row, line) in code.listing.lines.iter().enumerate() {
                    @match line {
                        Line::Instruction { .. } => (instruction(request, code, row, old.is_some().then_some(&counts))),
                        Line::Within { function } => tr.within { td colspan="8" { "inlined into " strong { (text(function)) } } },
                        Line::Gap { bytes } => tr.gap { td colspan="8" { "⋯ " (grouped(*bytes)) " bytes " @if exact { "not executed" } @else { "without samples" } } },
                        Line::Source { file, line, inlined, .. } => {
                            tr.at { td colspan="8" {
                                a href={ "#" (code.anchor(&(file.clone(), *line))) } { (text(file.rsplit('/').next().unwrap_or(file))) ":" (line) }
                                @if !inlined.is_empty() { " in " (text(&inlined.join(" › "))) }
                            } }
                        }
                    }
                }
            }
        }
        @if code.listing.lines.len() >= MOST { p.none { "There is more: lwp annotate prints it." } }
    }
}

fn same_build(request: &Request) -> bool {
    let both = request.function().and_then(|id| Some((id, request.in_base(id)?)));
    let Some(((id, other), (base, _))) = both.zip(request.base.as_ref()) else { return false };
    let (module, old) = (request.subject.profile().module_of(id), base.profile().module_of(other));
    !module.build_id.is_empty() && module.build_id == old.build_id
}

fn instruction(
    request: &Request,
    code: &Code,
    row: usize,
    before: Option<&BTreeMap<u64, u64>>,
) -> Markup {
    let Line::Instruction {
        address,
        text: shown,
        count: counted,
        beside,
        executed,
        taken,
        arrows,
        calls,
        ..
    } = &code.listing.lines[row]
    else {
        return html! {};
    };
    let place = code.places[row].as_ref();
    let calls: Vec<_> = calls.iter().filter(|called| !called.stub).collect();
    html! {
        tr id={ "i" (row) } class={ "h" (heat(*counted, code.greatest.0)) } data-line=[place.map(|place| code.anchor(place))] {
            td.num { @if *counted > 0 { (percent(*counted as f64, code.listing.total)) } }
            (count(*counted))
            @if let Some(beside) = beside { (count(*beside)) }
            @if let Some(before) = before { (change(before.get(address).copied().unwrap_or(0), *counted)) }
            @if code.listing.exact { (taken_of(*executed, *taken)) }
            td.no { (format!("{address:x}")) }
            td.arrows aria-hidden="true" { (arrows) }
            td.text { (text(shown)) @for (index, called) in calls.iter().take(4).enumerate() {
                span.call {
                    @if index == 0 { " → " } @else { ", " } (callee_link(request, &called.name)) " × " (grouped(called.calls))
                    @if let Some(cost) = called.cost { ": " (percent(cost as f64, code.listing.whole)) }
                }
            } @if calls.len() > 4 { span.call { ", and " (calls.len() - 4) " more" } } }
        }
    }
}

fn callee_link(request: &Request, callee: &str) -> Markup {
    let found = request.subject.labels.iter().position(|label| label.name == callee);
    html! {
        @match found {
            Some(index) => a href=(request.function_link(View::Code, FunctionId(index as u32))) { (text(callee)) },
            None => (text(callee)),
        }
    }
}

/// Writes the number of times that a conditional branch was taken.
fn taken_of(executed: u64, taken: Option<u64>) -> Markup {
    html! {
        td.taken {
            @if let Some(taken) = taken {
                @let part = percent(taken as f64, executed);
                svg.bar width="100%" height="100%" aria-hidden="true" { rect width=(part) height="100%" {} }
                span title={ "taken " (grouped(taken)) " of " (grouped(executed)) " times" } { (part) }
            }
        }
    }
}

fn legend(request: &Request, code: &Code) -> Markup {
    let own = own_is(request);
    if code.listing.interpreted {
        return cells::legend(&[(
            own,
            "Counts are samples while the line was executed, times their interval: of the interpreter for it, and not of functions that it called.",
        )]);
    }
    let mut sentences = vec![match code.listing.exact {
        true => (
            own,
            "Counts stand beside each instruction that was executed; a line has the sum of its instructions. What was not executed is left out.",
        ),
        false => (
            own,
            "Counts are samples at the instruction, times their interval; instructions without samples may have been executed.",
        ),
    }];
    if code.listing.exact {
        sentences.push((Sure::Exact, "taken: how often a conditional branch was taken, of its executions. Arrows lead from jumps to their targets in this function."));
    }
    if code.listing.beside.is_some() {
        sentences.push((Sure::Sampled, "cpu-time: samples of a native run, in nanoseconds. An interrupt comes after the instruction that took long: its time may stand at the next one."));
    }
    sentences.push((own, "Which line an instruction belongs to is what the compiler says: optimised code moves between lines."));
    cells::legend(&sentences)
}
