// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/testdata/benchcells"
)

// findBrowser is Debian's Chromium, or the program that SKEP_CHROMIUM names.
func findBrowser(t *testing.T) string {
	t.Helper()
	if program := os.Getenv("SKEP_CHROMIUM"); program != "" {
		return program
	}
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium in PATH, and SKEP_CHROMIUM names none: the page is not looked at (apt-get install chromium)")
	}
	return program
}

// tab is a page in a browser, with what went wrong in it.
type tab struct {
	*testing.T
	context.Context

	mu       sync.Mutex
	troubles []string
}

// open shows the page of a graph in a browser of its own.
func open(t *testing.T, g *graph.Graph, args ...string) *tab {
	t.Helper()
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(findBrowser(t)), chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1440, 900),
		chromedp.WSURLReadTimeout(time.Minute),
	}
	for _, flag := range []string{
		"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
		"disable-component-update", "disable-sync", "disable-dev-shm-usage", "hide-scrollbars",
	} {
		options = append(options, chromedp.Flag(flag, true))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	page := &tab{T: t, Context: ctx}
	page.listen()
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, drawn(t, g, append([]string{"-format", "html"}, args...)...), 0o644); err != nil {
		t.Fatal(err)
	}
	page.do(chromedp.Navigate("file://"+file), chromedp.WaitReady(chromedp.CSS("#view")))
	t.Cleanup(page.checkTroubles)
	return page
}

// drawn is what the command makes of a graph.
func drawn(t *testing.T, g *graph.Graph, args ...string) []byte {
	t.Helper()
	var in, out bytes.Buffer
	if err := g.WriteJSON(&in); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), args, &in, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// listen collects what the page complains about, and what it asks the network
// for.
func (p *tab) listen() {
	err := chromedp.Listen(p.Context, func(event any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			p.troubles = append(p.troubles, e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			p.troubles = append(p.troubles, fmt.Sprintf("console.%s", e.Type))
		case *log.EventEntryAdded:
			p.troubles = append(p.troubles, fmt.Sprintf("%s: %s", e.Entry.Level, e.Entry.Text))
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, "file:///") {
				p.troubles = append(p.troubles, "asks for "+e.Request.URL)
			}
		}
	})
	if err != nil {
		p.Fatal(err)
	}
	call(p, log.Enable, cdp.Empty{})
	call(p, network.Enable, network.EnableParams{})
}

// call sends a command of the protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) {
	p.Helper()
	if _, err := chromedp.Call(p.Context, command, params); err != nil {
		p.Fatal(err)
	}
}

func (p *tab) checkTroubles() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, trouble := range p.troubles {
		p.Errorf("the page: %s", trouble)
	}
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	if err := chromedp.Do(p.Context, actions...); err != nil {
		p.Fatal(err)
	}
}

// value is what an expression in the page amounts to.
func value[T any](p *tab, expression string) T {
	p.Helper()
	v, err := chromedp.Run(p.Context, chromedp.Evaluate[T](expression))
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
	return v
}

// run runs code in the page.
func (p *tab) run(code string) {
	p.Helper()
	p.do(chromedp.Evaluate[chromedp.Void](code))
}

// press types a letter as one event, so that the page can keep it from being
// typed.
func (p *tab) press(letter string) {
	p.Helper()
	call(p, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: letter, Text: letter})
	call(p, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: letter})
}

// until waits for an expression to become true.
func (p *tab) until(expression string) {
	p.Helper()
	if err := chromedp.Do(p.Context, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(20*time.Second))); err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
}

// texts are the words of all elements that a selector finds.
func (p *tab) texts(selector string) []string {
	p.Helper()
	return value[[]string](p, fmt.Sprintf("[...document.querySelectorAll(%q)].map(e => e.innerText.trim())", selector))
}

// picture saves what the page looks like; run the test with -artifacts to keep
// it.
func (p *tab) picture(name string) {
	p.Helper()
	png, err := chromedp.Run(p.Context, chromedp.CaptureScreenshot())
	if err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.ArtifactDir(), name+".png"), png, 0o644); err != nil {
		p.Fatal(err)
	}
}

// section is the text below a heading of the panel.
func (p *tab) section(heading string) string {
	p.Helper()
	return value[string](p, fmt.Sprintf(`(() => {
		const h = [...document.querySelectorAll("#panel h3")].find((h) => h.textContent === %q);
		return h ? h.nextElementSibling.innerText : "";
	})()`, heading))
}

func (p *tab) wantSection(heading string, words ...string) {
	p.Helper()
	text := p.section(heading)
	for _, w := range words {
		if !strings.Contains(text, w) {
			p.Errorf("under %q there is no %q:\n%s", heading, w, text)
		}
	}
}

// has reports which boxes have a class.
func (p *tab) has(class string) []string {
	p.Helper()
	return value[[]string](p, fmt.Sprintf(`[...document.querySelectorAll("#view .cell.%s")].map(e => e.id.replace("cell-", "")).sort()`, class))
}

func sample(t *testing.T, file string) *graph.Graph {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "runtime", "graph", "testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := graph.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestPageSearch(t *testing.T) {
	p := open(t, sample(t, "operator.json"))
	p.press("/")
	p.until(`document.activeElement.id === "query"`)
	p.do(chromedp.KeyEvent("ipam"))
	p.until(`document.querySelectorAll("#results [role=option]").length > 5`)
	found := strings.Join(p.texts("#results [role=option]"), "\n")
	for _, want := range []string{"cell\nipam\n", "cell\nipam.clusterpool", "type\nipam.Allocator", "flag\n--ipam\n", "constructor\nipam.newPools", "decorator\nipam.onlyOurs"} {
		if !strings.Contains(found, want) {
			t.Errorf("the search finds no %q in:\n%s", want, found)
		}
	}
	if hits, want := p.has("hit"), []string{"acme-lbipam", "ipam", "ipam.clusterpool", "ipam.eni"}; !slices.Equal(hits, want) {
		t.Errorf("the search highlights %v, want %v", hits, want)
	}
	if faded := value[string](p, `getComputedStyle(document.getElementById("cell-k8s")).opacity`); faded >= "0.5" {
		t.Errorf("what is not found has an opacity of %s", faded)
	}
	p.picture("search")
	p.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector("#panel h2")?.innerText.startsWith("ipam.clusterpool")`)
	if hits := p.has("hit"); len(hits) > 0 {
		t.Errorf("%v stay highlighted after a choice", hits)
	}
	p.press("/")
	p.do(chromedp.KeyEvent("nothing like it"))
	p.until(`document.getElementById("results").innerText.includes("Nothing is called that")`)
}

func TestPageType(t *testing.T) {
	p := open(t, sample(t, "operator.json"))
	// The word in the box of crds that says what it takes.
	p.run(`[...document.querySelectorAll("#cell-crds text")].find(e => e.textContent === "← *k8s.Client")
		.dispatchEvent(new MouseEvent("click", {bubbles: true}))`)
	p.until(`document.querySelector("#panel h2")?.innerText === "*k8s.Client"`)
	p.wantSection("Provided by", "k8s", "k8s.newClient, one per cell")
	p.wantSection("Needed by", "stream", "leader", "crds", "identity.gc", "ipam.clusterpool", "nodesync", "acme-lbipam", "ipam.eni ipam.newENI, off")
	if got := p.has("gives"); !slices.Equal(got, []string{"k8s"}) {
		t.Errorf("%v are shown as providers, want k8s", got)
	}
	if got := p.has("takes"); !slices.Contains(got, "identity.gc") || slices.Contains(got, "status") || len(got) != 9 {
		t.Errorf("%v are shown as those who need it", got)
	}
	// The word on a line.
	p.run(`[...document.querySelectorAll(".link text")].find(e => e.textContent === "identity.Allocator")
		.dispatchEvent(new MouseEvent("click", {bubbles: true}))`)
	p.until(`document.querySelector("#panel h2")?.innerText === "identity.Allocator"`)
	p.wantSection("Provided by", "identity")
	p.wantSection("Needed by", "identity.gc")
	p.picture("type")
	// A decorated value.
	p.run(`location.hash = "#type=" + encodeURIComponent("*stream.Resource[stream.CiliumNode]")`)
	p.until(`document.querySelector("#panel h2")?.innerText.startsWith("*stream")`)
	p.wantSection("Changed by", "ipam", "ipam.onlyOurs")
}

func TestPageCell(t *testing.T) {
	p := open(t, sample(t, "operator.json"))
	p.do(chromedp.Click(chromedp.CSS("#cell-nodesync")))
	p.until(`document.querySelector("#panel h2")?.innerText.startsWith("nodesync")`)
	p.wantSection("Needs", "*stream.Resource[stream.Pod] from stream", "ipam.Allocator from ipam.clusterpool, optional")
	p.wantSection("Starts", "5 of 7 in the term leader", "after crds.hook-install: objects can only be written once their CRD exists")
	if got := p.has("gives"); !slices.Equal(got, []string{"ipam.clusterpool", "k8s", "stream"}) {
		t.Errorf("%v are shown as what nodesync needs", got)
	}
	p.picture("cell")
	p.do(chromedp.Click(`//aside//button[text()="ipam.clusterpool"]`))
	p.until(`document.querySelector("#panel h2")?.innerText.startsWith("ipam.clusterpool")`)
	p.wantSection("Conditions", "holds", "the IPAM mode is cluster-pool", "--ipam")
	p.wantSection("Without it", "nodesync goes on without ipam.Allocator")
	p.wantSection("Flags", "--cluster-pool-ipv4-cidr")
	p.do(chromedp.Click(`//aside//button[text()="--ipam"]`))
	p.until(`document.querySelector("#panel h2")?.innerText === "--ipam"`)
	p.wantSection("Switches", "on ipam.clusterpool", "off ipam.eni")
}

func TestPageDisabledCell(t *testing.T) {
	p := open(t, sample(t, "operator.json"))
	style := func(cell, property string) string {
		return value[string](p, fmt.Sprintf(`getComputedStyle(document.querySelector("#cell-%s > path")).%s`, strings.ReplaceAll(cell, ".", `\\.`), property))
	}
	grey := value[string](p, `(() => { const e = document.createElement("p"); e.className = "why-off"; document.body.append(e); const c = getComputedStyle(e).backgroundColor; e.remove(); return c })()`)
	if got := style("ipam.eni", "fill"); got != grey || got == style("ipam", "fill") {
		t.Errorf("a cell that is off is %s, want %s", got, grey)
	}
	if got := style("ipam.eni", "strokeDasharray"); got == "none" {
		t.Error("a cell that is off has no dashes around it")
	}
	words := strings.Join(value[[]string](p, `[...document.querySelectorAll("#cell-ipam\\.eni text")].map(e => e.textContent)`), " ")
	if want := "off: needs that the IPAM mode is eni (--ipam)"; !strings.Contains(words, want) {
		t.Errorf("the box of a cell that is off says %q, not %q", words, want)
	}
	p.wantSection("Off", "kvstore", "ipam.eni\nneeds that the IPAM mode is eni (--ipam)", "heartbeat")
	p.do(chromedp.Click(chromedp.CSS(`#cell-ipam\.eni`)))
	p.until(`document.querySelector("#panel .why-off")?.innerText === "Off: needs that the IPAM mode is eni (--ipam)"`)
	p.wantSection("Conditions", "fails")
	p.picture("disabled")
}

func TestPageStartOrder(t *testing.T) {
	g := sample(t, "live.json")
	p := open(t, g)
	if value[bool](p, `document.getElementById("order").checkVisibility()`) {
		t.Error("the start order is in the way of the drawing")
	}
	p.do(chromedp.Click(chromedp.CSS("#tab-order")))
	p.until(`document.getElementById("order").checkVisibility()`)
	var want []string
	for _, o := range g.Orders {
		for _, s := range o.Steps {
			want = append(want, s.ID)
		}
	}
	if got := p.texts("#order tbody tr td:nth-child(2)"); !slices.Equal(got, want) {
		t.Errorf("the start order is %v, want %v", got, want)
	}
	reasons := strings.Join(p.texts("#order .reasons li"), "\n")
	for _, want := range []string{"objects can only be written once their CRD exists", "agents read a node only when its identity is there"} {
		if !strings.Contains(reasons, want) {
			t.Errorf("the reason %q is missing in:\n%s", want, reasons)
		}
	}
	tops := value[[]float64](p, `[...document.querySelectorAll("#order tbody tr")].map(e => e.getBoundingClientRect().top)`)
	if !slices.IsSorted(tops) {
		t.Error("the rows are not one below the other")
	}
	bars := value[[]float64](p, `[...document.querySelectorAll("#order td.bar rect")].map(e => e.getBoundingClientRect().width)`)
	if len(bars) != len(want) || slices.Min(bars) <= 0 {
		t.Errorf("the bars of the timeline are %v wide, want one for each of %d steps", bars, len(want))
	}
	p.do(chromedp.Click(`//section[@id="order"]//button[text()="identity.gc.job-sweep"]`))
	p.until(`document.querySelector("#panel h2")?.innerText.startsWith("identity.gc")`)
	p.picture("order")
}

func TestPageKeyboard(t *testing.T) {
	p := open(t, sample(t, "operator.json"))
	// From the top of the page to the drawing.
	for range 10 {
		p.do(chromedp.KeyEvent(kb.Tab))
		if value[bool](p, `document.activeElement.matches(".cell")`) {
			break
		}
	}
	p.until(`document.activeElement.matches(".cell")`)
	from := value[string](p, `document.activeElement.id`)
	p.do(chromedp.KeyEvent(kb.ArrowRight))
	p.until(fmt.Sprintf(`document.activeElement.matches(".cell") && document.activeElement.id !== %q`, from))
	reached := value[string](p, `document.activeElement.id.replace("cell-", "")`)
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(fmt.Sprintf(`document.querySelector("#panel h2")?.firstChild.textContent === %q`, reached))
	if got := p.has("picked"); !slices.Equal(got, []string{reached}) {
		t.Errorf("%v are picked, want %s", got, reached)
	}
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until(`!document.querySelector("#panel h2") && !document.querySelector("#view.chosen")`)
	p.do(chromedp.KeyEvent("0"))
	before := value[string](p, `document.getElementById("view").getAttribute("transform")`)
	p.do(chromedp.KeyEvent("+"))
	p.until(fmt.Sprintf(`document.getElementById("view").getAttribute("transform") !== %q`, before))
	p.do(chromedp.KeyEvent("0"))
	p.until(fmt.Sprintf(`document.getElementById("view").getAttribute("transform") === %q`, before))
	p.do(chromedp.Focus(chromedp.CSS("#tab-drawing")), chromedp.KeyEvent(kb.ArrowRight))
	p.until(`document.getElementById("order").checkVisibility()`)
}

func TestPageMouse(t *testing.T) {
	p := open(t, sample(t, "operator.json"))
	transform := func() string { return value[string](p, `document.getElementById("view").getAttribute("transform")`) }
	fitted := transform()
	wheel := `document.getElementById("paper").dispatchEvent(new WheelEvent("wheel", {deltaY: -200, clientX: 300, clientY: 300, cancelable: true}))`
	p.run(wheel)
	zoomed := transform()
	if zoomed == fitted {
		t.Error("the wheel does not zoom")
	}
	p.do(chromedp.DragAndDropXY(500, 300, 600, 360))
	if transform() == zoomed {
		t.Error("dragging does not move the drawing")
	}
	p.do(chromedp.Click(chromedp.CSS("#zoom-fit")))
	if got := transform(); got != fitted {
		t.Errorf("the fitted drawing stands at %s, want %s", got, fitted)
	}
}

// TestPageOddWords shows a title that would end a script if it could.
func TestPageOddWords(t *testing.T) {
	g := sample(t, "operator.json")
	title := `</script><script>window.broken = true</script><img src=x onerror="window.broken = true"> & <b>bold</b>`
	g.Module("crds").Title = title
	p := open(t, g)
	p.do(chromedp.Click(chromedp.CSS("#cell-crds")))
	p.until(`document.querySelector("#panel h2")?.innerText.startsWith("crds")`)
	if got := p.texts("#panel .title"); !slices.Equal(got, []string{title}) {
		t.Errorf("the title is shown as %q", got)
	}
	if value[bool](p, `"broken" in window`) {
		t.Error("a title was run")
	}
}

func TestPageDark(t *testing.T) {
	p := open(t, sample(t, "live.json"))
	colours := `["body", "header", "#panel", "#scope-1 > path", "#cell-crds > path"].map(s => { const c = getComputedStyle(document.querySelector(s)); return s.includes("path") ? c.fill : c.backgroundColor })`
	light := value[[]string](p, colours)
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
	p.until(fmt.Sprintf(`getComputedStyle(document.body).backgroundColor !== %q`, light[0]))
	for i, dark := range value[[]string](p, colours) {
		if dark == light[i] {
			t.Errorf("a surface stays %s on a dark page", dark)
		}
	}
	p.picture("dark")
}

func TestPageFull(t *testing.T) {
	g := sample(t, "operator.json")
	p := open(t, g, "-full")
	i := slices.IndexFunc(g.Nodes, func(n graph.Node) bool { return n.Name == "identity.newSweeper" })
	p.do(chromedp.Click(chromedp.CSS(fmt.Sprintf("#node-%d", i))))
	p.until(`document.querySelector("#panel h2")?.innerText.startsWith("identity.gc") && document.querySelector("#panel .named")`)
	p.picture("full")
}

// TestPageLarge opens a graph of 150 cells.
func TestPageLarge(t *testing.T) {
	h := hive.New("operator", benchcells.Set(150), hive.Environ(nil))
	if err := h.Select(); err != nil {
		t.Fatal(err)
	}
	p := open(t, h.Graph())
	if n := value[int](p, `document.querySelectorAll("#view .cell").length`); n != 151 {
		t.Errorf("%d cells are drawn, want 151", n)
	}
	if out := value[int](p, `(() => { const p = document.getElementById("paper").getBoundingClientRect();
		return [...document.querySelectorAll("#view .cell")].filter(e => { const r = e.getBoundingClientRect(); return r.left < p.left || r.right > p.right || r.top < p.top || r.bottom > p.bottom }).length })()`); out > 0 {
		t.Errorf("%d cells are out of sight", out)
	}
	p.picture("large")
	p.press("/")
	p.do(chromedp.KeyEvent("m77"), chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector("#panel h2")?.innerText.startsWith("m77")`)
	p.until(`!document.querySelector("#view.gliding") && document.getElementById("cell-m77").getBoundingClientRect().width > 60`)
	p.wantSection("Without it", "m78 breaks", "m149 breaks")
	p.picture("large-cell")
}
