//! Small subjects whose numbers are known.

use lwp_page::{Lane, Material, Subject};
use lwp_profile::{
    Builder, CallKind, Event, Frame, Function, FunctionId, Location, LocationId, Mode, Module,
    Origin, Profile, StackId, Thread, ThreadId, Values,
};

/// A module and two functions of one instruction each: `main`, and one of another name.
struct Two {
    builder: Builder,
    functions: [FunctionId; 2],
    locations: [LocationId; 2],
}

fn two(name: &str, mode: Mode, events: Vec<Event>) -> Two {
    let mut builder = Builder::new(format!("{name} --flag"), mode, events);
    let path = format!("/bin/{name}");
    let module = builder.module(Module { path, build_id: Vec::new(), ..Module::default() });
    let mut functions = [FunctionId(0); 2];
    let mut locations = [LocationId(0); 2];
    for (at, (name, address)) in [("main", 0x100), (name, 0x200)].into_iter().enumerate() {
        let origin = Origin::Symbol;
        let of = Function { module, name: name.into(), address, origin, ..Function::default() };
        functions[at] = builder.function(of);
        let frame = Frame { function: functions[at], file: format!("{name}.c").into(), line: 7 };
        let bytes = [0x90][..].into();
        locations[at] =
            builder.location(Location { module, address, bytes, frames: [frame].into() });
    }
    Two { builder, functions, locations }
}

fn subject(name: &str, profile: Profile, lanes: Vec<Lane>) -> Subject {
    let facts = vec![("command".to_owned(), name.to_owned())];
    let notes = vec![format!("{name} cannot be read")];
    let name = name.to_owned();
    Subject::new(Material { name, profile, facts, notes, lanes, ..Material::default() })
}

/// An exact recording: `main` counts 10 and calls `name` three times, which counts 90.
pub fn exact(name: &str) -> Subject {
    let Two { mut builder, functions, locations } = two(name, Mode::Exact, Event::exact());
    let thread = builder.thread(Thread { comm: name.into(), pid: 1, tid: 1 });
    for (location, count) in locations.into_iter().zip([10, 90]) {
        let stack = builder.stack(vec![location]);
        builder.sample(thread, stack, &Values(vec![count, 0, 0, 0, 0, 0, 0, 0]));
    }
    builder.call(Some(locations[0]), functions[1], CallKind::Direct, 3);
    subject(name, builder.finish(), Vec::new())
}

/// A recording of every tenth instruction: the first thread executed 450 in `main`, then 450 in `name`, which
/// `main` called; the second 100 in `main`.
pub fn sampled(name: &str) -> Subject {
    let event = Event { name: "instructions".into(), interval: Some(10), modelled: false };
    let Two { mut builder, locations, .. } = two(name, Mode::Sampled, vec![event]);
    let [first, second] =
        [1, 2].map(|tid| builder.thread(Thread { comm: name.into(), pid: 1, tid }));
    let outer = builder.stack(vec![locations[0]]);
    let inner = builder.stack(vec![locations[1], locations[0]]);
    for (thread, stack, count) in [(first, outer, 450), (first, inner, 450), (second, outer, 100)] {
        builder.sample(thread, stack, &Values(vec![count]));
    }
    let (profile, now) = builder.finish_renumbered();
    let place = |thread: ThreadId, stacks: &[(StackId, u32)]| Lane {
        thread: now.threads[thread.index()],
        event: 0,
        width: stacks.first().map_or(0, |part| u64::from(part.1) * 10),
        total: stacks.iter().map(|part| u64::from(part.1) * 10).sum(),
        parts: stacks.iter().map(|part| vec![(now.stacks[part.0.index()], part.1)]).collect(),
    };
    let lanes = vec![place(first, &[(outer, 45), (inner, 45)]), place(second, &[(outer, 10)])];
    subject(name, profile, lanes)
}

/// A recording of one stack in which `depth` functions have called each other.
pub fn deep(depth: u32) -> Subject {
    let event = Event { name: "instructions".into(), interval: Some(10), modelled: false };
    let mut builder = Builder::new("deep", Mode::Sampled, vec![event]);
    let module = builder.module(Module {
        path: "/bin/deep".into(),
        build_id: Vec::new(),
        ..Module::default()
    });
    let thread = builder.thread(Thread { comm: "deep".into(), pid: 1, tid: 1 });
    let mut stack = Vec::new();
    for number in (0..depth).rev() {
        let (name, address) = (format!("level{number}"), u64::from(number) * 16);
        let origin = Origin::Symbol;
        let function =
            builder.function(Function { module, name, address, origin, ..Function::default() });
        let frames = [Frame { function, ..Frame::default() }].into();
        stack.push(builder.location(Location { module, address, frames, ..Location::default() }));
    }
    let stack = builder.stack(stack);
    builder.sample(thread, stack, &Values(vec![1000]));
    subject("deep", builder.finish(), Vec::new())
}
