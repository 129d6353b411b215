// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

var services = corev1.SchemeGroupVersion.WithResource("services")

// A kind whose full type is of another resource, or that is custom and built in, is a mistake.
func TestKindsFitTheirResource(t *testing.T) {
	var wings = schema.GroupVersionResource{Group: "fjord.example", Version: "v1", Resource: "wings"}
	for name, test := range map[string]struct {
		check func() error
		want  string
	}{
		"of another resource": {stream.Core[slim.Pod, corev1.Pod](services).Check, "v1.Pod is the type of pods"},
		"of another group":    {stream.Core[slim.EndpointSlice, discoveryv1.EndpointSlice](services).Check, "v1.EndpointSlice is the type of endpointslices.discovery.k8s.io"},
		"of no resource":      {stream.Core[slim.Pod, corev1.PodSpec](services).Check, "v1.PodSpec is no type of the API server"},
		"custom and built in": {stream.Custom[slim.Pod](services).Check, "services are built in: declare them with stream.Core"},
		"custom":              {stream.Custom[slim.Pod](wings).Check, ""},
		"metadata":            {stream.Metadata[wing](services).Check, ""},
		"core":                {stream.Services.Check, ""},
		"of another package":  {stream.EndpointSlices.Check, ""},
	} {
		err := test.check()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// mistyped is a service with fields of which two do not fit.
type mistyped struct {
	slim.Meta `json:"metadata"`
	Spec      struct {
		Class   int32       `json:"loadBalancerClass"`
		Address slim.String `json:"loadbalancerIP"`
	} `json:"spec"`
}

// What is wrong with a stream is told without building it, all at once, with the place of the declaration.
func TestMistakesOfStreamsAreToldBeforeTheBuild(t *testing.T) {
	for name, test := range map[string]struct {
		cells []cell.Cell
		want  []string
	}{
		"fields": {
			[]cell.Cell{cell.Module("fjord", "Watches services", stream.Provide(stream.Core[mistyped, corev1.Service](services)))},
			[]string{"unusable declaration: stream kind services: ", "mistyped.Spec.Class: a int32 cannot keep string", `no field "loadbalancerIP"; did you mean loadBalancerIP?`, "declared    resources/stream_test/kind_test.go:"},
		},
		"twice": {
			[]cell.Cell{
				cell.Module("a", "Watches services", stream.Provide(stream.Custom[wing](wingResource))),
				cell.Module("b", "Watches them, too", stream.Provide(stream.Custom[wing](wingResource)), cell.Hook("use", useWings)),
			},
			[]string{"first       stream.Provide[stream_test.wing], resources/stream_test/kind_test.go:", "again       stream.Provide[stream_test.wing], resources/stream_test/kind_test.go:"},
		},
		"missing": {
			[]cell.Cell{cell.Module("b", "Asks for wings", cell.Hook("use", useWings))},
			[]string{"no module provides stream.Resource[stream_test.wing]", "fix         declare the stream with stream.Provide"},
		},
	} {
		h := hive.New("test", cell.Set(append(test.cells, k8s.Cell, stream.Cell)...), hive.LogTo(io.Discard))
		fs := h.FlagSet()
		if err := fs.Parse([]string{"--k8s-api-server=http://127.0.0.1:1"}); err != nil {
			t.Fatal(err)
		}
		_ = h.Configure(fs)
		err := h.Check()
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: want %q in\n%v", name, want, err)
			}
		}
	}
}

type wing struct {
	slim.Meta `json:"metadata"`
}

var wingResource = schema.GroupVersionResource{Group: "fjord.example", Version: "v1", Resource: "wings"}

func useWings(stream.Resource[wing]) lifecycle.Hook { return nil }
