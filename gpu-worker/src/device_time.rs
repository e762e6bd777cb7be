//! The device's own time of a forward pass, by events. It comes after the phases, which it must not touch.

use iteragpu_lab::protocol::{DeviceObservations, Failure};
use tch::Tensor;

use crate::boundary::{self, Event, Graph, SideStream};
use crate::failure::of_tch;
use crate::model::Model;

/// Passes on the side stream before the capture: the first one allocates there what the later ones find.
const PASSES_BEFORE_CAPTURE: usize = 3;

/// Observes `passes` passes one by one, then as many replays of a captured one.
pub fn observe(index: i32, model: &Model, rows: &Tensor, passes: u64) -> Result<DeviceObservations, Failure> {
    let mut forward = Vec::new();
    let (mut start, mut end) = (Event::new()?, Event::new()?);
    let mut output = None;
    for _ in 0..passes {
        // As in the phase `warm_forward`: the previous output is freed, the device has nothing to do.
        drop(output.take());
        start.record(index)?;
        output = Some(model.forward(rows)?);
        end.record(index)?;
        boundary::synchronize(index)?;
        forward.push(start.seconds_until(&end)?);
    }
    // A pass that cannot be captured is told, and takes nothing from what was measured.
    let replays = output.map_or_else(|| Ok(Vec::new()), |output| replays(index, model, rows, passes, &output));
    boundary::synchronize(index)?;
    Ok(match replays {
        Ok(seconds) => DeviceObservations { forward, graph_replay: Some(seconds), graph_failure: None },
        Err(failure) => DeviceObservations { forward, graph_replay: None, graph_failure: Some(failure) },
    })
}

/// Times from one replay to the next, all launched ahead, so that the device never waits for the host.
fn replays(index: i32, model: &Model, rows: &Tensor, passes: u64, expected: &Tensor) -> Result<Vec<f64>, Failure> {
    let _side_stream = SideStream::enter(index)?;
    for _ in 0..PASSES_BEFORE_CAPTURE {
        drop(model.forward(rows)?);
    }
    boundary::synchronize(index)?;
    // The output stays alive: its memory is where every replay writes.
    let (graph, output) = Graph::capture(index, || model.forward(rows))?;
    let mut events = vec![Event::new()?];
    graph.launch()?;
    events[0].record(index)?;
    for _ in 0..passes {
        graph.launch()?;
        let mut event = Event::new()?;
        event.record(index)?;
        events.push(event);
    }
    boundary::synchronize(index)?;
    if !output.f_equal(expected).map_err(of_tch)? {
        return Err(Failure::Libtorch { words: "the captured pass gives another output".to_owned() });
    }
    events.windows(2).map(|pair| pair[0].seconds_until(&pair[1])).collect()
}
