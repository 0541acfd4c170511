/** What the stub answers, by a word of the question. */

const RICH = `## Newton’s method

To find a root of $f$, begin near it and follow the tangent. Each step is

$$
x_{n+1} = x_n - \\frac{f(x_n)}{f'(x_n)}
$$

which for \\(f(x) = x^2 - a\\) is the old way to a **square root**:

\`\`\`rust
/// The square root of \`a\`, to the last bit or so.
fn sqrt(a: f64) -> f64 {
    let mut x = a.max(1.0);
    for _ in 0..40 {
        x = 0.5 * (x + a / x); // the mean of a guess and its partner
    }
    x
}
\`\`\`

| Step | Value for a = 2 | Error |
| :--- | ---: | ---: |
| 1 | 1.5 | 0.086 |
| 2 | 1.41667 | 0.0025 |
| 3 | 1.414216 | 2.1e-6 |

1. It needs a derivative.
2. It may run away from a bad start:
   \`\`\`python
   guess = 1e9
   \`\`\`
3. Near the root the number of right digits doubles.

A coffee is $5 and a cake is $6, which is no formula. More at https://example.org/newton and in [the article](https://en.wikipedia.org/wiki/Newton%27s_method).

> Errors shrink by their square.
`;

const HOSTILE = `<script>window.hacked = 1</script>

<img src=x onerror="window.hacked = 2">

[a](javascript:window.hacked=3) [b](data:text/html,<script>window.hacked=4</script>) [c](file:///etc/passwd) [d](vbscript:x)

![tracking](https://tracker.example/pixel.png?secret=1) ![inline](data:image/svg+xml;base64,PHN2Zz4=)

<a href="https://evil.example" onclick="window.hacked=5">click</a> <iframe src="https://evil.example"></iframe>

$\\href{javascript:window.hacked=6}{x}$ $\\includegraphics{https://tracker.example/tex.png}$ $\\htmlData{x=1}{y}$

[good](https://example.org/"onmouseover="window.hacked=7)

\`\`\`"><img src=x onerror=window.hacked=8>
code
\`\`\`

<style>body { display: none }</style>

End of it.
`;

const SHORT = `Paris is the capital of France. It lies on the Seine, in the north of the country. About two million people live in the city itself.`;

const paragraph = (n: number) =>
  `Paragraph ${String(n)} says something of no importance, so that there is enough text to scroll through while more of it is being written.`;
const LONG = Array.from({ length: 60 }, (_, n) => paragraph(n + 1)).join("\n\n");

const CODE = `Here it is:\n\n\`\`\`ts\n${Array.from({ length: 24 }, (_, n) => `export const value${String(n)} = ${String(n * n)}; // number ${String(n)}`).join("\n")}\n\`\`\`\n\nThat was all of it.`;

export function answerTo(question: string): string {
  const word = (w: string) => question.toLowerCase().includes(w);
  if (word("newton") || word("markdown")) return RICH;
  if (word("hostile")) return HOSTILE;
  if (word("long")) return LONG;
  if (word("code")) return CODE;
  if (word("capital")) return SHORT;
  return `You asked: ${question}\n\nThis is a *scripted* answer. It has two sentences and a [link](https://example.org/a?b=c#d).`;
}
