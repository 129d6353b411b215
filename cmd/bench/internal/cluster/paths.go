// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// pathKind is a kind of objects whose paths the operator writes to one CiliumEnvoyConfig.
type pathKind struct {
	kind     schema.GroupVersionResource
	plural   string
	flags    []string
	counts   []int
	recorded contest.Figures
	most99   float64 // milliseconds; 0 is 50
	// prepare makes what the objects need beside their backend, before the operator starts.
	prepare func(context.Context, *plane) error
	object  func(at int) *unstructured.Unstructured
	// path is where the path of an object is.
	path string
	// written are the kinds that the duty writes beside the CiliumEnvoyConfig.
	written []schema.GroupVersionResource
	// parent is the kind whose status counts the objects, if there is one.
	parent schema.GroupVersionResource
}

// The names of what is measured of such objects, at each number of them.
const (
	pathLast     = "the last created → all programmed"
	path50       = "one edit → CiliumEnvoyConfig, p50"
	path99       = "one edit → CiliumEnvoyConfig, p99"
	pathFloor50  = "the same object, read and replaced by the bench, p50"
	pathFloor99  = "the same object, read and replaced by the bench, p99"
	pathCPU      = "CPU of the operator for each edit"
	pathStart    = "start, with no CiliumEnvoyConfig → all programmed"
	pathIdle     = "writes in five idle seconds"
	pathRestarts = "writes of a restart"
)

func (k pathKind) created() string { return k.plural + ", until the last was created" }

func (k pathKind) parentWrites() string {
	return fmt.Sprintf("writes of the status of the %s for all of them", k.parent.Resource)
}

// measures are those of all numbers of objects.
func (k pathKind) measures() (all []contest.Measure) {
	for _, n := range k.counts {
		all = append(all,
			contest.Measure{Name: scaled(k.created(), n), Unit: "s"},
			contest.Measure{Name: scaled(pathLast, n), Unit: "s", Budget: contest.Budget{AtMost: 5}},
			contest.Measure{Name: scaled(path50, n), Unit: "ms"},
			contest.Measure{Name: scaled(path99, n), Unit: "ms", Budget: contest.Budget{AtMost: cmp.Or(k.most99, 50)}},
			contest.Measure{Name: scaled(pathFloor50, n), Unit: "ms"},
			contest.Measure{Name: scaled(pathFloor99, n), Unit: "ms"},
			contest.Measure{Name: scaled(pathCPU, n), Unit: "ms"},
			contest.Measure{Name: scaled(pathStart, n), Unit: "s", Budget: contest.Budget{AtMost: 5}},
			contest.Measure{Name: scaled(pathIdle, n), Budget: contest.Budget{Nothing: true}},
			contest.Measure{Name: scaled(pathRestarts, n), Budget: contest.Budget{Nothing: true}},
		)
		if !k.parent.Empty() {
			all = append(all, contest.Measure{Name: scaled(k.parentWrites(), n), Budget: contest.Budget{AtMost: 60}})
		}
	}
	return all
}

// measurePaths measures how fast the configuration follows the objects of a kind.
func (b Bench) measurePaths(k pathKind) func(context.Context, func(contest.Figures)) error {
	return func(ctx context.Context, record func(contest.Figures)) error {
		for _, n := range k.counts {
			err := b.onPlane(ctx, nil, func(ctx context.Context, p *plane) error {
				m := &paths{Bench: b, pathKind: k, plane: p, n: n, edited: newSightings[string](), programmed: newSightings[string](), record: record}
				return m.measure(ctx)
			})
			if err != nil {
				return fmt.Errorf("%d %s: %w", n, k.plural, err)
			}
		}
		return nil
	}
}

const (
	pathNamespace = "bench-paths"
	pathBackend   = "backend"
	pathEdits     = 20
)

var envoyConfigs = schema.GroupVersionResource{Group: "cilium.io", Version: "v2", Resource: "ciliumenvoyconfigs"}

// paths are the objects that the bench makes, and when their paths were in them and in the configuration.
type paths struct {
	Bench
	pathKind
	plane              *plane
	operator           *operator
	runs               int // of the operator
	n                  int
	began              time.Time          // the first was created
	current            []string           // the paths of all objects
	edited, programmed *sightings[string] // by path
	record             func(contest.Figures)
}

func (p *paths) measure(ctx context.Context) error {
	defer func() {
		if p.operator != nil {
			p.operator.end(syscall.SIGKILL)
		}
	}()
	for _, step := range []func(context.Context) error{p.begin, p.create, p.calm, p.edits, p.floor, p.startWithout, p.idle, p.restart} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// begin makes what the objects need, starts the operator, and follows what it writes.
func (p *paths) begin(ctx context.Context) error {
	core := p.plane.core.CoreV1()
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pathNamespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	backend := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: pathBackend}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	if _, err := core.Services(pathNamespace).Create(ctx, backend, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := p.prepare(ctx, p.plane); err != nil {
		return err
	}
	if err := p.start(ctx); err != nil {
		return err
	}
	if err := p.plane.defined(ctx, envoyConfigs); err != nil {
		return err
	}
	return p.follow(ctx)
}

// start starts an operator, and waits until it leads.
func (p *paths) start(ctx context.Context) (err error) {
	user := fmt.Sprint("operator-", p.runs)
	p.runs++
	if p.operator, err = p.run(ctx, p.plane, user, slices.Concat(raised, p.flags)...); err != nil {
		return err
	}
	return p.operator.waits(ctx, true)
}

func (p *paths) follow(ctx context.Context) error {
	err := p.plane.followKind(ctx, p.kind, func(_ watch.EventType, u *unstructured.Unstructured) {
		p.edited.record(time.Now(), pathsOf(u.Object["spec"])...)
	})
	if err != nil {
		return err
	}
	return p.plane.followKind(ctx, envoyConfigs, func(event watch.EventType, u *unstructured.Unstructured) {
		if at := time.Now(); event != watch.Deleted {
			p.programmed.record(at, pathsOf(u.Object["spec"])...)
		}
	})
}

// pathsOf are the texts in an object that begin with /bench-.
func pathsOf(of any) (paths []string) {
	switch v := of.(type) {
	case map[string]any:
		for _, one := range v {
			paths = append(paths, pathsOf(one)...)
		}
	case []any:
		for _, one := range v {
			paths = append(paths, pathsOf(one)...)
		}
	case string:
		if strings.HasPrefix(v, "/bench-") {
			paths = append(paths, v)
		}
	}
	return paths
}

// create creates the objects as fast as the API server takes them.
func (p *paths) create(ctx context.Context) error {
	p.Progress(fmt.Sprintf("creating %d %s", p.n, p.plural))
	p.began = time.Now()
	err := paced(ctx, 0, p.n, func(ctx context.Context, at int) error {
		_, err := p.plane.client.Resource(p.kind).Namespace(pathNamespace).Create(ctx, p.object(at), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	p.current = numbered("/bench", p.n)
	made, err := p.edited.wait(ctx, p.current)
	if err != nil {
		return err
	}
	programmed, err := p.programmed.wait(ctx, p.current)
	if err != nil {
		return err
	}
	p.record(contest.Figures{scaled(p.created(), p.n): seconds(p.began, made), scaled(pathLast, p.n): seconds(latest(made), programmed)})
	return nil
}

// calm waits until the operator does nothing more: the status of thousands of objects comes after their configuration.
func (p *paths) calm(ctx context.Context) error {
	for {
		before, err := p.operator.cpu()
		if err != nil {
			return err
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
		after, err := p.operator.cpu()
		if err != nil || after-before <= 0.02 {
			return err
		}
	}
}

// edits changes the path of one object after the other.
func (p *paths) edits(ctx context.Context) error {
	p.Progress(fmt.Sprintf("%d %s: editing %d", p.n, p.plural, pathEdits))
	before, err := p.operator.cpu()
	if err != nil {
		return err
	}
	all := numbered("/bench-edit", pathEdits)
	for at, path := range all {
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
		patch := fmt.Sprintf(`[{"op":"replace","path":%q,"value":%q}]`, p.path, path)
		of := at * p.n / pathEdits
		p.current[of] = path
		if _, err := p.plane.client.Resource(p.kind).Namespace(pathNamespace).Patch(ctx, p.object(of).GetName(), types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	edited, err := p.edited.wait(ctx, all)
	if err != nil {
		return err
	}
	programmed, err := p.programmed.wait(ctx, all)
	if err != nil {
		return err
	}
	after, err := p.operator.cpu()
	late := delays(edited, programmed)
	p.record(contest.Figures{
		scaled(path50, p.n): 1000 * percentile(late, .5), scaled(path99, p.n): 1000 * percentile(late, .99),
		scaled(pathCPU, p.n): 1000 * (after - before) / pathEdits,
	})
	if err == nil && !p.parent.Empty() {
		err = p.parents()
	}
	return err
}

// parents counts the writes of the status of the parent: edits do not change it.
func (p *paths) parents() error {
	requests, err := p.plane.requests(p.operator.user, p.began)
	p.record(contest.Figures{scaled(p.parentWrites(), p.n): float64(mutating(requests, p.parent))})
	return err
}

// floor measures what the API server takes for an edit of the configuration: it is read and replaced with another annotation, and
// neither is decoded.
func (p *paths) floor(ctx context.Context) error {
	p.Progress(fmt.Sprintf("%d %s: replacing their CiliumEnvoyConfig", p.n, p.plural))
	configs, err := p.plane.client.Resource(envoyConfigs).List(ctx, metav1.ListOptions{})
	if err != nil || len(configs.Items) != 1 {
		return fmt.Errorf("%d CiliumEnvoyConfigs, want 1: %w", len(configs.Items), err)
	}
	at := fmt.Sprintf("/apis/cilium.io/v2/namespaces/%s/ciliumenvoyconfigs/%s", configs.Items[0].GetNamespace(), configs.Items[0].GetName())
	var took []float64
	for i := range pathEdits {
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
		began := time.Now()
		if err := p.annotate(ctx, at, fmt.Sprint(i)); err != nil {
			return err
		}
		took = append(took, 1000*time.Since(began).Seconds())
	}
	p.record(contest.Figures{scaled(pathFloor50, p.n): percentile(took, .5), scaled(pathFloor99, p.n): percentile(took, .99)})
	return nil
}

// annotate replaces an object.
func (p *paths) annotate(ctx context.Context, at, value string) error {
	client := p.plane.core.CoreV1().RESTClient()
	text, err := client.Get().AbsPath(at).SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Raw()
	if err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	var metadata metav1.ObjectMeta
	if err := json.Unmarshal(fields["metadata"], &metadata); err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&metadata, "bench", value)
	if fields["metadata"], err = json.Marshal(metadata); err != nil {
		return err
	}
	if text, err = json.Marshal(fields); err != nil {
		return err
	}
	return client.Put().AbsPath(at).SetHeader("Accept", runtime.ContentTypeJSON).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(text).Do(ctx).Error()
}

// startWithout starts another operator where there is no configuration yet.
func (p *paths) startWithout(ctx context.Context) error {
	p.Progress(fmt.Sprintf("%d %s: starting without a CiliumEnvoyConfig", p.n, p.plural))
	p.operator.end(syscall.SIGTERM)
	configs, err := p.plane.client.Resource(envoyConfigs).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, c := range configs.Items {
		if err := p.plane.client.Resource(envoyConfigs).Namespace(c.GetNamespace()).Delete(ctx, c.GetName(), metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	p.programmed.forget()
	began := time.Now()
	if err := p.start(ctx); err != nil {
		return err
	}
	programmed, err := p.programmed.wait(ctx, p.current)
	if err != nil {
		return err
	}
	p.record(contest.Figures{scaled(pathStart, p.n): seconds(began, programmed)})
	return nil
}

func (p *paths) idle(ctx context.Context) error {
	if err := sleep(ctx, window); err != nil { // numbers of routes may come later
		return err
	}
	return p.writes(ctx, pathIdle, time.Now())
}

func (p *paths) restart(ctx context.Context) error {
	p.operator.end(syscall.SIGTERM)
	if err := p.start(ctx); err != nil {
		return err
	}
	return p.writes(ctx, pathRestarts, p.operator.began)
}

// writes counts what the operator writes from a time to the end of a window that begins now.
func (p *paths) writes(ctx context.Context, measure string, began time.Time) error {
	if err := sleep(ctx, window); err != nil {
		return err
	}
	requests, err := p.plane.requests(p.operator.user, began)
	if err != nil {
		return err
	}
	count := mutating(requests, envoyConfigs)
	for _, kind := range p.written {
		count += mutating(requests, kind)
	}
	p.record(contest.Figures{scaled(measure, p.n): float64(count)})
	return nil
}
