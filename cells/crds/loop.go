// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

var crdResource = resource.WithVersion("v1")

// registrar brings definitions to the state that the cluster needs.
type registrar struct {
	client  k8s.Client
	log     *slog.Logger
	metrics *crdMetrics
	kinds   []api.Kind
	loop    *reconcile.Loop[api.Kind]

	mu      sync.Mutex
	missing map[string]error // kinds that are not established yet, and why
	done    chan struct{}    // closed when missing becomes empty
}

func newRegistrar(c Config, shared cluster.Config, client k8s.Client, s reconcile.Scope, m *crdMetrics) *registrar {
	r := &registrar{
		client: client, log: s.Log, metrics: m, kinds: wanted(c, shared),
		missing: map[string]error{}, done: make(chan struct{}),
	}
	r.loop = reconcile.New(s, "register", r.register, reconcile.Workers(8), reconcile.Pauses(50*time.Millisecond, 30*time.Second))
	for _, k := range r.kinds {
		r.missing[k.Name] = errPending
		r.loop.Add(k, k8s.Trigger{Kind: "Term", Name: "leader"})
	}
	return r
}

func (r *registrar) job() job.Job { return r.loop.Job() }

// errPending stands for kinds that were not looked at yet.
var errPending = errors.New("not looked at yet")

// firstPass holds the other cells of the term back until all definitions are
// there, or for a while. What is missing then is registered meanwhile; the
// streams of such kinds wait by themselves.
func (r *registrar) firstPass() lifecycle.Hook {
	return lifecycle.Funcs{OnStart: func(ctx context.Context) error {
		deadline := time.NewTimer(firstPassLimit / 2)
		defer deadline.Stop()
		select {
		case <-r.done:
		case <-ctx.Done():
		case <-deadline.C:
			r.log.Warn("not all kinds are registered yet; duties that need them wait, the others start", "missing", r.missingText())
		}
		return nil
	}}
}

func (r *registrar) missingText() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(r.missing)), ", ")
}

// register looks at one kind.
func (r *registrar) register(ctx context.Context, k api.Kind) error {
	err := r.bring(ctx, k)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.missing[k.Name] = err
		return fmt.Errorf("%s: %w", k.CRDName(), err)
	}
	delete(r.missing, k.Name)
	if len(r.missing) == 0 {
		select {
		case <-r.done:
		default:
			close(r.done)
		}
	}
	return nil
}

// bring takes the next step towards a definition that is current and
// established; the loop comes back after an error.
func (r *registrar) bring(ctx context.Context, k api.Kind) error {
	ours, err := k.CRD()
	if err != nil {
		return err
	}
	installed, err := r.get(ctx, k)
	if apierrors.IsNotFound(err) {
		if installed, err = r.create(ctx, k, ours); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	d := decide(installed, ours)
	switch d.action {
	case wait:
		return errors.New("it is being deleted; it is created again when it is gone")
	case update:
		if installed, err = r.update(ctx, k, ours); err != nil {
			return err
		}
		r.log.Info("updated a definition", "name", k.CRDName(), "from", d.installed, "to", api.SchemaVersion)
		r.metrics.set(k, d.installed, "updated")
	case leave:
		r.tell(k, d)
	}
	ok, err := established(installed)
	switch {
	case err != nil:
		r.metrics.set(k, d.installed, "failed")
		return err
	case !ok:
		return reconcile.After(establishedPause)
	}
	return nil
}

// establishedPause is how often a new definition is looked at until it serves.
const establishedPause = 50 * time.Millisecond

func (r *registrar) tell(k api.Kind, d decision) {
	switch {
	case d.newer:
		r.log.Info("a newer definition is installed, it is left as it is", "name", k.CRDName(), "installed", d.installed, "ours", api.SchemaVersion)
		r.metrics.set(k, d.installed, "newer")
	case d.drifted:
		r.log.Warn("a definition bears our version with another schema; it is left as it is, remove its label "+api.SchemaVersionLabel+" to have it replaced",
			"name", k.CRDName(), "version", d.installed)
		r.metrics.set(k, d.installed, "drifted")
	default:
		r.metrics.set(k, d.installed, "equal")
	}
}

func (r *registrar) get(ctx context.Context, k api.Kind) (*apiextensionsv1.CustomResourceDefinition, error) {
	u, err := r.client.Get(ctx, k8s.Ref{Resource: crdResource, Name: k.CRDName()})
	if err != nil {
		return nil, err
	}
	return typed(u)
}

func (r *registrar) create(ctx context.Context, k api.Kind, ours *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	content, err := body(ours)
	if err != nil {
		return nil, err
	}
	u, err := r.client.Create(ctx, crdResource, &unstructured.Unstructured{Object: content})
	switch {
	case apierrors.IsAlreadyExists(err): // another instance was faster
		return r.get(ctx, k)
	case err != nil:
		return nil, err
	}
	r.log.Info("created a definition", "name", k.CRDName(), "version", api.SchemaVersion)
	return typed(u)
}

// update replaces the spec and sets our version; labels of others stay.
func (r *registrar) update(ctx context.Context, k api.Kind, ours *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	content, err := body(ours)
	if err != nil {
		return nil, err
	}
	u, _, err := r.client.Modify(ctx, k8s.Ref{Resource: crdResource, Name: k.CRDName()}, func(u *unstructured.Unstructured) error {
		now, err := typed(u)
		if err != nil {
			return err
		}
		if decide(now, ours).action != update { // somebody else has done it
			return nil
		}
		labels := u.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[api.SchemaVersionLabel] = api.SchemaVersion
		u.SetLabels(labels)
		u.Object["spec"] = runtime.DeepCopyJSONValue(content["spec"])
		return nil
	})
	if err != nil {
		return nil, err
	}
	return typed(u)
}

// body is a definition as it is sent: without a status.
func body(crd *apiextensionsv1.CustomResourceDefinition) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", crd.Name, err)
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return content, nil
}

func typed(u *unstructured.Unstructured) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, crd); err != nil {
		return nil, fmt.Errorf("reading %s: %w", u.GetName(), err)
	}
	return crd, nil
}
