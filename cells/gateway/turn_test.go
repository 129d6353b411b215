// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/k8s"
)

// K8S-26: what needs much memory has the turn of large objects while it is translated, and no longer; what is small, or was translated before, does not wait.
func TestTranslationsHaveTheTurn(t *testing.T) {
	model := func(routes int) envoy.Model {
		l := envoy.Listener{Port: 80}
		for i := range routes {
			l.Routes = append(l.Routes, &envoy.Route{Path: envoy.Match{Kind: envoy.Exact, Value: fmt.Sprint("/", i)}, Backends: []envoy.Backend{{Name: envoy.Name{Namespace: "a", Name: "s"}, Port: "80"}}})
		}
		return envoy.Model{HTTP: []envoy.Listener{l}}
	}
	small, large := model(10), model(5000)
	o := envoy.Options{Service: envoy.Name{Namespace: "a", Name: "s"}, FirstWins: true, Checked: true}
	var of envoy.Translator
	if _, _, err := translateInTurn(t.Context(), &of, large, o); err != nil {
		t.Fatal(err)
	}
	const much = 4 << 20
	held, release := k8s.WithTurn(t.Context())
	if err := k8s.AwaitTurn(held, much); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := translateInTurn(short, &of, large, o); err != nil {
		t.Errorf("what was translated before: %v", err)
	}
	if _, _, err := translateInTurn(short, new(envoy.Translator), small, o); err != nil {
		t.Errorf("what is small: %v", err)
	}
	if _, _, err := translateInTurn(short, new(envoy.Translator), large, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("what is large: %v", err)
	}
	release()
	if _, spec, err := translateInTurn(t.Context(), new(envoy.Translator), large, o); err != nil || len(spec.JSON) < 100_000 {
		t.Errorf("%d bytes, %v", len(spec.JSON), err)
	}
	again, end := k8s.WithTurn(t.Context())
	defer end()
	if err := k8s.AwaitTurn(again, much); err != nil {
		t.Error(err)
	}
}
