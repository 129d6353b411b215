// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// The names of what is measured of the registration of definitions.
const (
	definitionsNumber  = "definitions"
	definitionsFirst   = "start of the process on an empty cluster → all are served"
	definitionsFloor   = "the same, created by the bench, one after the other → all are served"
	definitionsRestart = "writes of a restart"
)

// allKinds are flags by which all kinds are registered.
var allKinds = []string{
	"--ipam=kubernetes", "--enable-envoy-config", "--enable-bgp-control-plane", "--enable-cilium-endpoint-slice", "--enable-egress-gateway",
	"--enable-local-redirect-policy", "--enable-datapath-plugins", "--identity-allocation-mode=crd",
}

func (b Bench) definitionsContest() contest.Contest {
	return contest.Contest{
		Name: "definitions", Title: "Registration of definitions",
		Note:        "Each round has an empty control plane of its own. A definition is served when the API server lists its kind. The bench creates the same definitions with a client of its own.",
		Contestants: contestants,
		Measures: []contest.Measure{
			{Name: definitionsNumber}, {Name: definitionsFirst, Unit: "s", Budget: contest.Budget{AtMost: 3}}, {Name: definitionsFloor, Unit: "s"},
			{Name: definitionsRestart, Budget: contest.Budget{Nothing: true}},
		},
	}
}

func (b Bench) definitions(ctx context.Context, record func(contest.Figures)) error {
	var known []unstructured.Unstructured // what an operator registers
	for round := range b.Rounds + 1 {
		err := b.onPlane(ctx, nil, func(ctx context.Context, p *plane) error {
			if round == 0 {
				var err error
				known, err = b.registered(ctx, p)
				return err
			}
			return b.register(ctx, p, known, record)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// registered are the definitions that an operator registers.
func (b Bench) registered(ctx context.Context, p *plane) ([]unstructured.Unstructured, error) {
	o, err := b.run(ctx, p, "operator-0", slices.Concat(raised, allKinds)...)
	if err != nil {
		return nil, err
	}
	defer o.end(syscall.SIGTERM)
	if err := o.waits(ctx, true); err != nil {
		return nil, err
	}
	if err := sleep(ctx, watched); err != nil {
		return nil, err
	}
	list, err := p.client.Resource(definitionKind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// register has an operator register all on an empty control plane, and another find it done; and then the bench do the same.
func (b Bench) register(ctx context.Context, p *plane, all []unstructured.Unstructured, record func(contest.Figures)) error {
	o, err := b.run(ctx, p, "operator-1", slices.Concat(raised, allKinds)...)
	if err != nil {
		return err
	}
	defer func() { o.end(syscall.SIGKILL) }()
	if err := p.serves(ctx, all); err != nil {
		return err
	}
	first := time.Since(o.began).Seconds()
	if err := o.waits(ctx, true); err != nil {
		return err
	}
	o.end(syscall.SIGTERM)
	if o, err = b.run(ctx, p, "operator-2", slices.Concat(raised, allKinds)...); err != nil {
		return err
	}
	if err := o.waits(ctx, true); err != nil {
		return err
	}
	if err := sleep(ctx, window); err != nil {
		return err
	}
	requests, err := p.requests(o.user, o.began)
	if err != nil {
		return err
	}
	o.end(syscall.SIGTERM)
	floor, err := p.create(ctx, all)
	record(contest.Figures{
		definitionsNumber: float64(len(all)), definitionsFirst: first, definitionsFloor: floor, definitionsRestart: float64(mutating(requests, definitionKind)),
	})
	return err
}

// create deletes the definitions, creates them again, and returns how many seconds it was until all were served.
func (p *plane) create(ctx context.Context, all []unstructured.Unstructured) (float64, error) {
	definitions := p.client.Resource(definitionKind)
	if err := definitions.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return 0, err
	}
	err := until(ctx, func() (bool, error) {
		list, err := definitions.List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, err
	})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	for i := range all {
		d := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": all[i].GetName()}, "spec": all[i].Object["spec"],
		}}
		if _, err := definitions.Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return 0, fmt.Errorf("creating %s: %w", d.GetName(), err)
		}
	}
	err = p.serves(ctx, all)
	return time.Since(began).Seconds(), err
}

// serves waits until the API server lists all kinds.
func (p *plane) serves(ctx context.Context, definitions []unstructured.Unstructured) error {
	for i := range definitions {
		kind := schema.GroupVersionResource{}
		kind.Group, _, _ = unstructured.NestedString(definitions[i].Object, "spec", "group")
		kind.Resource, _, _ = unstructured.NestedString(definitions[i].Object, "spec", "names", "plural")
		versions, _, _ := unstructured.NestedSlice(definitions[i].Object, "spec", "versions")
		for _, v := range versions {
			if version, ok := v.(map[string]any); ok && version["served"] == true {
				kind.Version, _ = version["name"].(string)
			}
		}
		if err := p.defined(ctx, kind); err != nil {
			return fmt.Errorf("listing %s: %w", kind.Resource, err)
		}
	}
	return nil
}
