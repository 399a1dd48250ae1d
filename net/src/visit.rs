//! Questions from outside the cores: a dry run of one request.
//!
//! A question is left in a box and the first core is woken; it answers through a channel. The asker waits on its own
//! thread, never a core.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use engine::gates::{Answer, Ask};
use engine::verdict::{Refusal, Tripped};
use engine::{CoreId, Dims, Gate, Probe, ProbeAnswer};

use crate::bounds::OPEN_PROBES;
use crate::core::{Core, Shared};
use crate::rt;

/// The core that answers.
const ANSWERS: CoreId = CoreId(0);

/// Questions that wait for an answer.
#[derive(Debug, Default)]
pub struct Questions {
    open: Mutex<VecDeque<(Probe, SyncSender<ProbeAnswer>)>>,
}

impl Questions {
    fn pop(&self) -> Option<(Probe, SyncSender<ProbeAnswer>)> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Asks, and waits at most `patience`; `None` when no answer came, or too many wait already.
pub fn ask(shared: &Shared, probe: Probe, patience: Duration) -> Option<ProbeAnswer> {
    let (sender, receiver) = sync_channel(1);
    {
        let mut open = shared.questions.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= OPEN_PROBES {
            return None;
        }
        open.push_back((probe, sender));
    }
    shared.mesh.ring(ANSWERS);
    receiver.recv_timeout(patience).ok()
}

/// Answers whatever is asked. For the core that answers, after it was woken.
pub fn answer(core: &Rc<Core>) {
    if core.id != ANSWERS {
        return;
    }
    while let Some((probe, sender)) = core.shared.questions.pop() {
        let core = core.clone();
        rt::spawn("probe", async move {
            // The asker may have lost patience; then nobody hears the answer.
            let _ = sender.send(run(&core, &probe).await);
        });
    }
}

/// What the request would meet now. Counts nothing and holds nothing.
async fn run(core: &Core, probe: &Probe) -> ProbeAnswer {
    let armed = core.armed();
    let dims = Dims { model: &probe.model, provider: &probe.provider, endpoint: &probe.endpoint };
    let gate_one = armed.gate_one_shown(&probe.chain, &dims);
    let gate_two = armed.shown(&probe.chain, &dims);
    let held = core.read(&gate_two).await;
    let now = core.now();
    let rates: Vec<_> = gate_one.read(now).collect();
    let mut caps: Vec<_> = gate_one.instances().cloned().zip(rates).collect();
    caps.extend(gate_two.instances().cloned().zip(held));
    let refusal = match gate_one.look(now) {
        Some(refusal) => Some((Gate::One, refusal)),
        None => {
            let ask = || Ask::Check { plan: gate_two.clone(), estimate: probe.estimate };
            let answers = core.ask_all(&gate_two, ask).await;
            over(answers).map(|refusal| (Gate::Two, refusal))
        }
    };
    ProbeAnswer { caps, refusal }
}

/// All that owners say is over, in evaluation order.
fn over(answers: Vec<Answer>) -> Option<Refusal> {
    let mut tripped: Vec<(u16, Tripped)> = Vec::new();
    for answer in answers {
        if let Answer::Refused(partial) = answer {
            tripped.extend(partial.tripped);
        }
    }
    tripped.sort_by_key(|(place, _)| *place);
    let tripped: Vec<_> = tripped.into_iter().map(|(_, cap)| cap).collect();
    (!tripped.is_empty()).then_some(Refusal { tripped })
}
