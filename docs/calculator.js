// Choosing ε and δ: the table of measured expectations as a calculator. Between rows and columns it interpolates in
// logarithms of people, ratings and ε. It sends nothing anywhere.
document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("calculator");
  const table = [...document.querySelectorAll("table")].find((t) => t.rows[0].cells[0].textContent === "people");
  if (!place || !table) return;
  const number = (cell) => parseFloat(cell.textContent.replace(/[^\d.]/g, ""));
  const [head, ...rows] = [...table.rows].map((row) => [...row.cells]);
  const epsilons = head.slice(2).map(number);
  const points = rows.flatMap((row) =>
    epsilons.map((epsilon, at) => ({ place: [number(row[0]), number(row[1]), epsilon].map(Math.log), share: number(row[at + 2]) }))
  );

  function expected(people, ratings, epsilon) {
    // nearby measurements weigh more: inverse distance to the fourth power, in logarithms
    let total = 0, weights = 0;
    for (const point of points) {
      const distance = [people, ratings, epsilon].reduce((sum, x, at) => sum + (Math.log(x) - point.place[at]) ** 2, 0);
      const weight = 1 / (distance + 1e-6) ** 2;
      total += weight * point.share;
      weights += weight;
    }
    return total / weights;
  }

  const bounds = [0, 1].map((at) => rows.map((row) => number(row[at]))).concat([epsilons]);
  const asked = ["people", "ratings each", "ε"];
  const inputs = [10000, 30, 1].map((value, at) => {
    const label = document.createElement("label");
    const input = Object.assign(document.createElement("input"), { type: "number", value, step: "any" });
    input.min = Math.min(...bounds[at]);
    input.max = Math.max(...bounds[at]);
    input.style.cssText = "width: 7em; margin: 0 1.2em 0 .4em; padding: .2em .4em; border: 1px solid; border-radius: 4px";
    label.append(asked[at], input);
    place.append(label);
    return input;
  });
  const answer = Object.assign(document.createElement("p"), { role: "status" });
  place.append(answer);
  const show = () => {
    const values = inputs.map((input) => parseFloat(input.value));
    const outside = values.findIndex((value, at) => !(value >= +inputs[at].min && value <= +inputs[at].max));
    answer.textContent = outside >= 0
      ? `Measured for ${asked[outside]} from ${inputs[outside].min} to ${inputs[outside].max}.`
      : `About ${Math.round(expected(...values))} % of the way from popularity to a factorization without privacy.`;
  };
  inputs.forEach((input) => input.addEventListener("input", show));
  show();
});
