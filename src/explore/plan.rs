//! What varies around a base configuration, the points that follow, and the order of the runs.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::arguments::{parse_count, parse_seed};
use crate::error::LabError;
use crate::json;
use crate::measure::{Dtype, MeasureConfig, check_device_passes};

/// Runs of one exploration at most: its plan is one line of its file.
pub const MAX_RUNS: u64 = 100_000;

/// Repetitions of one point at most: its measurement is one line of the file, and `measure` takes more.
pub const MAX_REPEATS: u64 = 100_000;

/// A dimension of the configuration that an exploration may vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// First dimension of the inputs.
    Batch,
    /// Second dimension of the inputs.
    Context,
    /// Third dimension of the inputs and both dimensions of the weights.
    Width,
    /// Number type of weights and inputs.
    Dtype,
    /// Passes of the warm-up phase.
    Warmup,
    /// Timed passes after the warm-up.
    Repeats,
    /// Seed of weights and inputs.
    Seed,
}

impl Dimension {
    const ALL: [Self; 7] =
        [Self::Batch, Self::Context, Self::Width, Self::Dtype, Self::Warmup, Self::Repeats, Self::Seed];

    /// Its key in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Context => "context",
            Self::Width => "width",
            Self::Dtype => "dtype",
            Self::Warmup => "warmup",
            Self::Repeats => "repeats",
            Self::Seed => "seed",
        }
    }

    /// Its value in `config`.
    pub fn of(self, config: &MeasureConfig) -> Value {
        match self {
            Self::Batch => Value::Number(config.batch),
            Self::Context => Value::Number(config.context),
            Self::Width => Value::Number(config.width),
            Self::Dtype => Value::Dtype(config.dtype),
            Self::Warmup => Value::Number(config.warmup),
            Self::Repeats => Value::Number(config.repeats),
            Self::Seed => Value::Number(config.seed),
        }
    }

    /// What a refusal calls one of its values: the dimension's name alone would be an option of `measure`.
    fn value_name(self) -> String {
        format!("valeur de {}", self.name())
    }

    /// Reads `text` as a value of this dimension.
    fn read(self, text: &str) -> Result<Value, LabError> {
        match self {
            Self::Dtype => text.parse().map(Value::Dtype).map_err(|error| error.of_argument(&self.value_name())),
            Self::Seed => parse_seed(&self.value_name(), text).map(Value::Number),
            _ => parse_count(&self.value_name(), text).map(Value::Number),
        }
    }

    /// `config` with another value of this dimension.
    fn with(self, config: &MeasureConfig, value: Value) -> MeasureConfig {
        let mut config = config.clone();
        match (self, value) {
            (Self::Batch, Value::Number(number)) => config.batch = number,
            (Self::Context, Value::Number(number)) => config.context = number,
            (Self::Width, Value::Number(number)) => config.width = number,
            (Self::Warmup, Value::Number(number)) => config.warmup = number,
            (Self::Repeats, Value::Number(number)) => config.repeats = number,
            (Self::Seed, Value::Number(number)) => config.seed = number,
            (Self::Dtype, Value::Dtype(dtype)) => config.dtype = dtype,
            // `read` makes no other pair, and a plan from a file is read anew.
            (Self::Dtype, Value::Number(_)) | (_, Value::Dtype(_)) => {}
        }
        config
    }
}

impl FromStr for Dimension {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let names = || Self::ALL.map(Self::name).join(", ");
        let known = Self::ALL.into_iter().find(|dimension| dimension.name() == text);
        known.ok_or_else(|| LabError::invalid("nom de dimension", text, format!("une des dimensions {}", names())))
    }
}

/// A dimension's value: a number, or a number type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Of every dimension but `dtype`.
    Number(u64),
    /// Of `dtype`.
    Dtype(Dtype),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Dtype(dtype) => f.write_str(dtype.name()),
        }
    }
}

/// One dimension and the values that it takes, in the order given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variation {
    /// What varies.
    pub dimension: Dimension,
    /// Its values, each once.
    pub values: Vec<Value>,
}

/// How a plan is made, beside its base and what varies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Every combination of the values, instead of one dimension at a time.
    pub product: bool,
    /// How many fresh processes measure each point, at least 1.
    pub trials: u64,
    /// Seed of the order of the runs.
    pub order_seed: u64,
    /// Passes for the device's own time, when asked for.
    pub device_passes: Option<u64>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { product: false, trials: 1, order_seed: 1729, device_passes: None }
    }
}

/// A checked plan: the points and the order in which fresh processes measure them. `Display` prints
/// it as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The configuration around which the dimensions vary.
    pub base: MeasureConfig,
    /// What varies: each dimension in a series of its own, the others as in `base`; or all together
    /// when `product` is true.
    pub vary: Vec<Variation>,
    /// Whether the points are every combination of the values.
    pub product: bool,
    /// Fresh processes a point.
    pub trials: u64,
    /// Seed that `runs` was drawn with.
    pub order_seed: u64,
    /// Passes for the device's own time; `null` when it is not asked for.
    pub device_passes: Option<u64>,
    /// The configurations, each once, in the order of `vary`.
    pub points: Vec<MeasureConfig>,
    /// The order: every point once in each trial, drawn anew for each, so that a drift of the
    /// machine does not look like an effect of a dimension.
    pub runs: Vec<PlannedRun>,
}

/// One fresh process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRun {
    /// Number of the trial, from 1 on.
    pub trial: u64,
    /// Position in `points`, from 0 on.
    pub point: usize,
}

impl Plan {
    /// Plans `vary`, each text a dimension and its values such as `width=64,128,256`, around `base`.
    ///
    /// # Errors
    /// [`LabError::InvalidArgument`] for a dimension or a value that is not accepted or named twice,
    /// for a point that cannot be measured or has more than [`MAX_REPEATS`] repetitions, and for more than
    /// [`MAX_RUNS`] runs.
    ///
    /// # Examples
    /// ```
    /// use iteragpu_lab::MeasureConfig;
    /// use iteragpu_lab::explore::{Plan, PlanOptions};
    ///
    /// let options = PlanOptions { trials: 3, ..PlanOptions::default() };
    /// let plan = Plan::new(MeasureConfig::default(), &["width=64,128", "batch=1,2,4"], &options)?;
    /// assert_eq!((plan.points.len(), plan.runs.len()), (5, 15));
    /// # Ok::<(), iteragpu_lab::LabError>(())
    /// ```
    pub fn new(base: MeasureConfig, vary: &[impl AsRef<str>], options: &PlanOptions) -> Result<Self, LabError> {
        let vary: Vec<Variation> = vary.iter().map(|text| Variation::read(text.as_ref())).collect::<Result<_, _>>()?;
        check_vary(&vary)?;
        check_options(options)?;
        let sizes = vary.iter().map(|variation| variation.values.len() as u64);
        let count = if options.product { sizes.fold(1, u64::saturating_mul) } else { sizes.sum() };
        if count.saturating_mul(options.trials) > MAX_RUNS {
            let found = format!("{count} × {}", options.trials);
            return Err(LabError::invalid("points × essais", &found, format!("au plus {MAX_RUNS} mesures")));
        }
        let points = if options.product { product(&base, &vary) } else { series(&base, &vary) };
        points.iter().try_for_each(check_point)?;
        let runs = drawn_order(points.len(), options);
        let &PlanOptions { product, trials, order_seed, device_passes } = options;
        Ok(Self { base, vary, product, trials, order_seed, device_passes, points, runs })
    }

    /// Whether it is what [`Plan::new`] makes of its own base, variations and options: a plan from a
    /// file may be anything.
    pub fn is_consistent(&self) -> bool {
        // Before texts are made of them: a line has room for millions.
        if self.vary.iter().map(|variation| variation.values.len() as u64).sum::<u64>() > MAX_RUNS {
            return false;
        }
        let vary: Vec<String> = self.vary.iter().map(ToString::to_string).collect();
        let &Self { product, trials, order_seed, device_passes, .. } = self;
        let options = PlanOptions { product, trials, order_seed, device_passes };
        Self::new(self.base.clone(), &vary, &options).is_ok_and(|plan| plan == *self)
    }

    /// Positions in `points` of each series, in the order of its values: one series a dimension, or the
    /// product as a single one.
    pub fn series(&self) -> Vec<Vec<usize>> {
        if self.product {
            return vec![(0..self.points.len()).collect()];
        }
        let positions: HashMap<&MeasureConfig, usize> = self.points.iter().zip(0..).collect();
        let of = |variation: &Variation| {
            variation.around(&self.base).filter_map(|point| positions.get(&point).copied()).collect()
        };
        self.vary.iter().map(of).collect()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", json::Pretty(self))
    }
}

impl fmt::Display for Variation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.values.iter().map(ToString::to_string).collect();
        write!(f, "{}={}", self.dimension.name(), values.join(","))
    }
}

impl Variation {
    fn read(text: &str) -> Result<Self, LabError> {
        let expected = "une dimension et ses valeurs, par exemple width=64,128,256";
        let (name, texts) = text.split_once('=').ok_or_else(|| LabError::invalid("vary", text, expected))?;
        let dimension: Dimension = name.parse()?;
        let (mut values, mut seen) = (Vec::new(), BTreeSet::new());
        for text in texts.split(',') {
            let value = dimension.read(text)?;
            if !seen.insert(value) {
                return Err(LabError::invalid(&dimension.value_name(), text, "chaque valeur une seule fois"));
            }
            values.push(value);
        }
        Ok(Self { dimension, values })
    }

    /// Its points around `base`.
    fn around<'a>(&'a self, base: &'a MeasureConfig) -> impl Iterator<Item = MeasureConfig> + 'a {
        self.values.iter().map(|value| self.dimension.with(base, *value))
    }
}

/// Reads a base such as `batch=1,context=16,dtype=float32`; what it does not name is as in `default`.
///
/// # Errors
/// [`LabError::InvalidArgument`] for a dimension or a value that is not accepted, or named twice.
pub fn parse_base(text: &str, default: MeasureConfig) -> Result<MeasureConfig, LabError> {
    let mut base = default;
    let mut named = Vec::new();
    for part in text.split(',') {
        let expected = "des dimensions et leurs valeurs, par exemple batch=1,context=16,dtype=float32";
        let (name, value) = part.split_once('=').ok_or_else(|| LabError::invalid("base", part, expected))?;
        let dimension: Dimension = name.parse()?;
        if named.contains(&dimension) {
            return Err(LabError::invalid("base", part, "chaque dimension une seule fois"));
        }
        named.push(dimension);
        base = dimension.with(&base, dimension.read(value)?);
    }
    Ok(base)
}

fn check_vary(vary: &[Variation]) -> Result<(), LabError> {
    if vary.is_empty() {
        return Err(LabError::invalid("vary", "", "au moins une dimension qui varie"));
    }
    for (position, variation) in vary.iter().enumerate() {
        if vary[..position].iter().any(|earlier| earlier.dimension == variation.dimension) {
            let expected = "chaque dimension une seule fois, avec toutes ses valeurs";
            return Err(LabError::invalid("vary", &variation.to_string(), expected));
        }
    }
    Ok(())
}

fn check_point(point: &MeasureConfig) -> Result<(), LabError> {
    if point.repeats > MAX_REPEATS {
        let expected = format!("un entier de 1 à {MAX_REPEATS} pour une exploration");
        return Err(LabError::invalid(&Dimension::Repeats.value_name(), &point.repeats.to_string(), expected));
    }
    point.check().map(drop)
}

fn check_options(options: &PlanOptions) -> Result<(), LabError> {
    if options.trials == 0 {
        return Err(LabError::invalid("trials", "0", "un entier strictement positif"));
    }
    check_device_passes(options.device_passes)
}

fn product(base: &MeasureConfig, vary: &[Variation]) -> Vec<MeasureConfig> {
    vary.iter().fold(vec![base.clone()], |points, variation| {
        points.iter().flat_map(|point| variation.around(point).collect::<Vec<_>>()).collect()
    })
}

/// One series after the other; what two of them share can only be the base, and is there once.
fn series(base: &MeasureConfig, vary: &[Variation]) -> Vec<MeasureConfig> {
    let mut had_base = false;
    let points = vary.iter().flat_map(|variation| variation.around(base));
    points.filter(|point| point != base || !std::mem::replace(&mut had_base, true)).collect()
}

/// Every point once a trial, in an order drawn for each trial.
fn drawn_order(points: usize, options: &PlanOptions) -> Vec<PlannedRun> {
    let mut random = fastrand::Rng::with_seed(options.order_seed);
    let trial = |trial| {
        let mut order: Vec<usize> = (0..points).collect();
        random.shuffle(&mut order);
        order.into_iter().map(move |point| PlannedRun { trial, point })
    };
    (1..=options.trials).flat_map(trial).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::MAX_DEVICE_PASSES;

    fn refused(vary: &[&str], options: &PlanOptions) -> String {
        Plan::new(MeasureConfig::default(), vary, options).map_err(|error| error.to_string()).err().unwrap_or_default()
    }

    #[test]
    fn each_dimension_varies_alone_around_the_base() -> Result<(), LabError> {
        let base = parse_base("batch=1,context=16,dtype=float32", MeasureConfig::default())?;
        let plan = Plan::new(base.clone(), &["width=64,1024", "batch=1,2", "dtype=float16"], &PlanOptions::default())?;
        for point in &plan.points {
            let differing =
                Dimension::ALL.iter().filter(|dimension| dimension.of(point) != dimension.of(&base)).count();
            assert!(differing <= 1, "{point:?}");
        }
        // width=1024 and batch=1 are the base, which is measured once.
        assert_eq!(plan.points.len(), 4);
        assert_eq!(plan.series(), [vec![0, 1], vec![1, 2], vec![3]]);
        Ok(())
    }

    #[test]
    fn a_product_is_every_combination() -> Result<(), LabError> {
        let options = PlanOptions { product: true, trials: 2, ..PlanOptions::default() };
        let plan = Plan::new(MeasureConfig::default(), &["width=64,128,256", "batch=1,2"], &options)?;
        let sizes: BTreeSet<(u64, u64)> = plan.points.iter().map(|point| (point.width, point.batch)).collect();
        assert_eq!((plan.points.len(), sizes.len(), plan.runs.len()), (6, 6, 12));
        assert_eq!(plan.series(), [(0..6).collect::<Vec<_>>()]);
        Ok(())
    }

    #[test]
    fn every_trial_has_every_point_once_in_an_order_of_its_own() -> Result<(), LabError> {
        let vary = ["width=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"];
        let of_seed = |order_seed| {
            let options = PlanOptions { trials: 3, order_seed, ..PlanOptions::default() };
            Plan::new(MeasureConfig::default(), &vary, &options).map(|plan| plan.runs)
        };
        let runs = of_seed(1)?;
        let trials: Vec<Vec<usize>> =
            runs.chunks(16).map(|trial| trial.iter().map(|run| run.point).collect()).collect();
        for (trial, number) in trials.iter().zip(1..) {
            let mut sorted = trial.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..16).collect::<Vec<_>>());
            assert!(runs[(number - 1) * 16..number * 16].iter().all(|run| run.trial == number as u64));
        }
        assert!(trials[0] != trials[1] && trials[1] != trials[2] && trials[0] != (0..16).collect::<Vec<_>>());
        assert_eq!(runs, of_seed(1)?);
        assert_ne!(runs, of_seed(2)?);
        Ok(())
    }

    #[test]
    fn what_cannot_be_planned_is_refused_by_name() {
        let options = PlanOptions::default();
        let cases: [(&[&str], &str); 13] = [
            (&["repeats=5,100001"], "valeur de repeats"),
            (&[], "vary"),
            (&["width"], "vary"),
            (&["width="], "valeur de width"),
            (&["width=64,,128"], "valeur de width"),
            (&["width=0"], "valeur de width"),
            (&["width=64,64"], "valeur de width"),
            (&["width=64", "width=128"], "vary"),
            (&["height=1"], "nom de dimension"),
            (&["device=cuda:1"], "nom de dimension"),
            (&["dtype=float64"], "valeur de dtype"),
            (&["seed=9223372036854775808"], "valeur de seed"),
            (&["width=4611686018427387904"], "width"),
        ];
        for (vary, name) in cases {
            let said = refused(vary, &options);
            assert!(said.starts_with(&format!("{name} :")), "{vary:?}: {said}");
        }
        let many = PlanOptions { trials: MAX_RUNS, ..PlanOptions::default() };
        assert!(refused(&["width=1,2"], &many).starts_with("points × essais"));
        assert!(refused(&["width=1"], &PlanOptions { trials: 0, ..PlanOptions::default() }).starts_with("trials"));
        for device_passes in [Some(0), Some(MAX_DEVICE_PASSES + 1)] {
            let options = PlanOptions { device_passes, ..PlanOptions::default() };
            assert!(refused(&["width=1"], &options).starts_with("device_time"));
        }
        for base in ["", "batch", "batch=1,batch=2", "batch=1,", "height=2", "dtype=int8"] {
            assert!(parse_base(base, MeasureConfig::default()).is_err(), "{base:?}");
        }
    }

    #[test]
    fn a_plan_from_a_file_is_made_anew_and_must_be_the_same() -> Result<(), LabError> {
        let options = PlanOptions { trials: 2, device_passes: Some(5), ..PlanOptions::default() };
        let plan = Plan::new(MeasureConfig::default(), &["dtype=float16,bfloat16", "seed=0,1"], &options)?;
        let read: Result<Plan, _> = serde_json::from_str(&plan.to_string());
        assert!(read.is_ok_and(|read| read == plan && read.is_consistent()));
        let changes: [fn(&mut Plan); 5] = [
            |plan| plan.runs.swap(0, 1),
            |plan| plan.points[0].width = 7,
            |plan| plan.trials = 1,
            |plan| plan.vary[1].values.reverse(),
            |plan| plan.vary[0].values[0] = Value::Number(3),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut changed = plan.clone();
            change(&mut changed);
            assert!(!changed.is_consistent(), "{number}");
        }
        Ok(())
    }
}
