//! What the layers of a model allocate and free, one event after the other.

use crate::measure::MeasureConfig;

/// A layer, with what is known of its memory. To add one, say in each function what it does and how
/// that was learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// `y = x W^T + b`: weights `[outputs, inputs]`, bias `[outputs]`; `[rows, inputs]` gives
    /// `[rows, outputs]`.
    Linear { inputs: u64, outputs: u64 },
    /// `y = gelu(x)`, element by element: `[rows, width]` gives the same shape.
    Gelu { width: u64 },
}

/// `Linear(width, width) -> GELU -> Linear(width, width)`.
pub(super) fn synthetic_model(width: u64) -> [Layer; 3] {
    let linear = Layer::Linear { inputs: width, outputs: width };
    [linear, Layer::Gelu { width }, linear]
}

impl Layer {
    /// Numbers in each parameter, in the order in which `torch.nn` keeps and moves them.
    fn parameters(self) -> Vec<(&'static str, u64)> {
        match self {
            Self::Linear { inputs, outputs } => vec![("poids", outputs * inputs), ("biais", outputs)],
            Self::Gelu { .. } => Vec::new(),
        }
    }

    /// Numbers in one row of the output. PyTorch computes both layers out of place.
    fn output_width(self) -> u64 {
        match self {
            Self::Linear { outputs, .. } => outputs,
            Self::Gelu { width } => width,
        }
    }

    /// Workspaces of the libraries that its kernel calls, allocated once a process, after the output.
    ///
    /// `addmm` with a bias goes through cuBLASLt when the matrix of weights is larger than one number in
    /// both directions (PyTorch 2.11, `addmm_out_cuda_impl`); its handle is cuBLAS's, which comes with the
    /// first workspace. Elementwise kernels such as GELU have none.
    fn workspaces(self) -> &'static [Workspace] {
        match self {
            Self::Linear { inputs, outputs } if inputs > 1 && outputs > 1 => &[Workspace::Cublas, Workspace::Cublaslt],
            Self::Linear { .. } => &[Workspace::Cublas],
            Self::Gelu { .. } => &[],
        }
    }
}

/// What a library allocates through PyTorch at its first use, and keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workspace {
    Cublas,
    Cublaslt,
}

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Parameters,
    Inputs,
    Activations,
    LibraryWorkspace,
}

/// A step of a program; tensors have numbers of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Allocate { tensor: usize, purpose: Purpose, name: String, bytes: u64 },
    Free { tensor: usize },
}

/// Produces the events of a model, phase by phase.
pub(super) struct Program<'a> {
    layers: &'a [Layer],
    rows: u64,
    input_width: u64,
    number_bytes: u64,
    workspace_bytes: [u64; 2],
    used: Vec<Workspace>,
    next_tensor: usize,
}

impl<'a> Program<'a> {
    /// `workspace_bytes` are those of cuBLAS and of cuBLASLt.
    pub fn new(layers: &'a [Layer], config: &MeasureConfig, workspace_bytes: [u64; 2]) -> Self {
        Self {
            layers,
            rows: config.batch * config.context,
            input_width: config.width,
            number_bytes: config.dtype.bytes(),
            workspace_bytes,
            used: Vec::new(),
            next_tensor: 0,
        }
    }

    /// Every parameter moves to the GPU by itself.
    pub fn load(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for (place, layer) in self.layers.iter().enumerate() {
            for (name, numbers) in layer.parameters() {
                let name = format!("{name} {place}");
                events.push(self.allocate(Purpose::Parameters, name, numbers * self.number_bytes));
            }
        }
        events
    }

    /// `[batch, context, width]`, drawn on the GPU.
    pub fn inputs(&mut self) -> Vec<Event> {
        let bytes = self.rows * self.input_width * self.number_bytes;
        vec![self.allocate(Purpose::Inputs, "entrées".to_owned(), bytes)]
    }

    /// One pass, and the number of the output, which is still alive at its end. What a layer was given is
    /// freed when its output is there, except the inputs.
    pub fn forward(&mut self) -> (Vec<Event>, usize) {
        let (mut events, mut given) = (Vec::new(), None);
        for (place, layer) in self.layers.iter().enumerate() {
            let bytes = self.rows * layer.output_width() * self.number_bytes;
            let output = self.next_tensor;
            events.push(self.allocate(Purpose::Activations, format!("sortie {place}"), bytes));
            for workspace in layer.workspaces() {
                events.extend(self.first_use(*workspace));
            }
            events.extend(given.replace(output).map(|tensor| Event::Free { tensor }));
        }
        (events, given.unwrap_or_default())
    }

    fn first_use(&mut self, workspace: Workspace) -> Option<Event> {
        let (name, bytes) = match workspace {
            Workspace::Cublas => ("espace cuBLAS", self.workspace_bytes[0]),
            Workspace::Cublaslt => ("espace cuBLASLt", self.workspace_bytes[1]),
        };
        // PyTorch allocates nothing for a workspace of no bytes.
        if self.used.contains(&workspace) || bytes == 0 {
            return None;
        }
        self.used.push(workspace);
        Some(self.allocate(Purpose::LibraryWorkspace, name.to_owned(), bytes))
    }

    fn allocate(&mut self, purpose: Purpose, name: String, bytes: u64) -> Event {
        let tensor = self.next_tensor;
        self.next_tensor += 1;
        Event::Allocate { tensor, purpose, name, bytes }
    }
}
