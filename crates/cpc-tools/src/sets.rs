//! From specifications to sets of libcpc.

use cpc::{Cpc, ErrorKind, EventNames, EventUses, Request, RequestFlags, Set};

use crate::failure::Failure;
use crate::spec::Spec;

/// The requests of one specification, with counters assigned.
#[derive(Clone, Debug)]
pub struct Template {
    text: String,
    pics: Vec<u32>,
    requests: Vec<Request>,
}

impl Template {
    /// Assigns counters: the one asked for, or the first above those used so far that can count
    /// the event.
    ///
    /// # Errors
    ///
    /// The text is no specification, or names an event that cannot be counted here.
    pub fn new(cpc: &Cpc, text: &str) -> Result<Self, Failure> {
        let attributes = cpc.attributes(EventUses::COUNTING);
        let spec = Spec::parse(text, &attributes)?;
        let mut template = Self { text: text.to_owned(), pics: Vec::new(), requests: Vec::new() };
        for wanted in &spec.events {
            let pics = match wanted.pic {
                Some(pic) if template.pics.contains(&pic) => {
                    return Err(Failure::Usage(format!("pic{pic} is used twice in '{text}'")));
                }
                Some(pic) => pic..pic + 1,
                None => template.pics.iter().max().map_or(0, |pic| pic + 1)..cpc.counter_count(),
            };
            template.place(cpc, &spec, &wanted.event, pics)?;
        }
        let numbers = spec.modifiers.iter().filter_map(|modifier| modifier.pic);
        match numbers.into_iter().find(|pic| !template.pics.contains(pic)) {
            Some(pic) => {
                Err(Failure::Usage(format!("'{text}' modifies pic{pic}, which counts nothing")))
            }
            None => Ok(template),
        }
    }

    /// Puts `event` on the first of `pics` that can count it.
    fn place(
        &mut self,
        cpc: &Cpc,
        spec: &Spec,
        event: &str,
        pics: std::ops::Range<u32>,
    ) -> Result<(), Failure> {
        let mut refusal = None;
        for pic in pics {
            let request = request(spec, event, pic);
            match cpc.create_set().add(request.clone()) {
                Ok(_) => {
                    let place = self.pics.partition_point(|other| *other < pic);
                    self.pics.insert(place, pic);
                    self.requests.insert(place, request);
                    return Ok(());
                }
                Err(error) => {
                    let other = error.kind() == ErrorKind::CounterNotCapable;
                    refusal = Some(error);
                    if !other {
                        break;
                    }
                }
            }
        }
        Err(match refusal {
            Some(error) => Failure::Usage(format!("'{event}': {}", error.reason())),
            None => Failure::Usage(format!("no counter is left for '{event}'")),
        })
    }

    /// The specification as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The counters, lowest first: the order of the columns.
    pub fn pics(&self) -> &[u32] {
        &self.pics
    }

    /// A set with these requests.
    ///
    /// # Errors
    ///
    /// The library refuses a request.
    pub fn set(&self, cpc: &Cpc) -> Result<Set, Failure> {
        let set = cpc.create_set();
        for request in &self.requests {
            set.add(request.clone()).map_err(Failure::new)?;
        }
        Ok(set)
    }

    /// Binds and unbinds the set to the calling thread, to learn now whether it can be counted.
    ///
    /// # Errors
    ///
    /// The set cannot be bound.
    pub fn try_out(&self, cpc: &Cpc) -> Result<(), Failure> {
        let set = self.set(cpc)?;
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        set.bind_tid(tid)
            .map_err(|error| Failure::new(format!("'{}': {}", self.text, error.reason())))?;
        set.unbind().map_err(Failure::new)
    }

    /// A template without requests.
    #[cfg(test)]
    pub(crate) fn empty(text: &str) -> Self {
        Self { text: text.to_owned(), pics: Vec::new(), requests: Vec::new() }
    }

    /// Returns whether nothing is counted in user mode.
    pub fn is_system_only(&self) -> bool {
        self.requests.iter().all(|request| !request.flags().contains(RequestFlags::USER))
    }
}

/// The request for `event` on counter `pic`.
fn request(spec: &Spec, event: &str, pic: u32) -> Request {
    let mut flags = RequestFlags::USER;
    let mut request = Request::new(event).with_attribute("picnum", u64::from(pic));
    for modifier in spec.modifiers_of(pic) {
        match &*modifier.name {
            "sys" => flags |= RequestFlags::KERNEL,
            "nouser" => flags -= RequestFlags::USER,
            name => request = request.with_attribute(name, modifier.value),
        }
    }
    request.with_flags(flags)
}

/// All templates of a command line.
///
/// # Errors
///
/// One of the specifications is refused.
pub fn templates(cpc: &Cpc, specs: &[String]) -> Result<Vec<Template>, Failure> {
    if specs.is_empty() {
        return Err(Failure::Usage("no events: give -c".into()));
    }
    specs.iter().map(|spec| Template::new(cpc, spec)).collect()
}

/// The numbers for the title: those of the widest set.
pub fn title_pics(templates: &[Template]) -> &[u32] {
    let widest = templates.iter().max_by_key(|template| template.pics.len());
    widest.map_or(&[], |template| &template.pics)
}

/// Events of one kind of names, counter by counter.
pub fn events_of(cpc: &Cpc, pic: u32, names: EventNames) -> Vec<String> {
    let events = cpc.events_of_counter(pic, names, EventUses::COUNTING).unwrap_or_default();
    events.into_iter().map(str::to_owned).collect()
}
