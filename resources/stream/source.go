// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/plan"
)

// Connect returns the client for the next request. A stream asks at every list
// and every watch, so the client may change from one call to the next (another
// API server, another identity). The client serves all groups: its base is the
// server, not a group. Its http.Client must have no Timeout, which would end
// every watch; its rate limiter is used once per list or watch.
type Connect func(ctx context.Context) (rest.Interface, error)

// Source is where streams come from: an API server. It holds what its streams
// share. It is safe for concurrent use.
type Source struct {
	connect Connect
	crds    func() (*Stream[crd], error)
	plan    *plan.Plan // nil: a real run
}

// NewSource makes a source; it does nothing until a stream is used.
func NewSource(connect Connect) *Source {
	s := &Source{connect: connect}
	s.crds = sync.OnceValues(func() (*Stream[crd], error) { return newCRDs(s) })
	return s
}

// connectThrough connects as a module does.
func connectThrough(c k8s.Client) (Connect, error) {
	config := c.RESTConfig()
	types := runtime.NewScheme() // of errors alone: objects are decoded by their streams
	metav1.AddToGroupVersion(types, schema.GroupVersion{Version: "v1"})
	config.NegotiatedSerializer = serializer.NewCodecFactory(types).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return func(context.Context) (rest.Interface, error) { return client, nil }, nil
}
