//! What a person sees of an exploration's plan, and of what has become of it.

use super::Present;
use super::figures::{counted, integer};
use super::grid::{Grid, numbers, words};
use super::view::View;
use super::views::shape;
use crate::explore::{Explored, Plan};

/// A longer list of values is cut, and says how many there are.
const MAX_VALUES: usize = 24;

impl Present for Plan {
    fn view(&self) -> View {
        let (points, runs) = (self.points.len() as u64, self.runs.len() as u64);
        let title = format!(
            "Plan : {}, {} de chacun, {}, chacune dans un processus neuf",
            counted(points, "point", "points"),
            counted(self.trials, "essai", "essais"),
            counted(runs, "mesure", "mesures")
        );
        with_plan(View::new(title), self)
    }
}

/// What varies, around what, and in which order.
pub(super) fn with_plan(view: View, plan: &Plan) -> View {
    let mut grid = Grid::new(&[words("Ce qui varie"), words("Valeurs"), numbers("Nombre")]);
    for variation in &plan.vary {
        let count = variation.values.len();
        let mut values: Vec<String> = variation.values.iter().take(MAX_VALUES).map(ToString::to_string).collect();
        if count > MAX_VALUES {
            values.push("…".to_owned());
        }
        grid.push([variation.dimension.name().into(), values.join(", ").into(), integer(count as u64).into()]);
    }
    let how = match (plan.product, plan.vary.len()) {
        (true, _) => "Toutes les combinaisons de ces valeurs : un écart peut venir de plusieurs dimensions à la fois.",
        (false, 1) => "Une seule dimension varie.",
        (false, _) => {
            "Une dimension varie à la fois, les autres restant celles de la base ; un point commun à deux séries n'est mesuré qu'une fois."
        }
    };
    let base = &plan.base;
    let rest = format!(
        "Base : {}, {} ; échauffement {}, passages mesurés {}, graine {}.",
        base.device,
        shape(base),
        integer(base.warmup),
        integer(base.repeats),
        base.seed
    );
    let order = format!(
        "L'ordre est tiré au sort à chaque essai (graine {}), pour qu'une dérive de la machine ne passe pas pour un effet.",
        plan.order_seed
    );
    let view = view.grid(grid).note(how).note(rest).note(order);
    match plan.device_passes {
        Some(passes) => {
            let passes = counted(passes, "passage", "passages");
            view.note(format!("Temps à l'horloge du GPU : {passes} de plus par mesure."))
        }
        None => view,
    }
}

impl Present for Explored {
    fn view(&self) -> View {
        View::new(self.to_string())
    }
}
