// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/skep-operator/skep/resources/dryrun"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/internal/conditions"
	"github.com/skep-operator/skep/resources/stream/internal/reflector"
	"github.com/skep-operator/skep/resources/stream/slim"
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
	crds    func() (*Stream[crd], error) // used only while a definition is missing
	plan    *dryrun.Plan                 // nil: a real run
	memory  *reflector.Memory            // nil: no bound
}

// NewSource makes a source; it does nothing until a stream is used.
func NewSource(connect Connect) *Source {
	s := &Source{connect: connect}
	s.crds = sync.OnceValues(func() (*Stream[crd], error) { return New(s, crds, WithLinger(0)) })
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

// crd is a CustomResourceDefinition of which only the name is kept.
type crd struct {
	slim.Meta `json:"metadata"`
}

const apiextensions = "apiextensions.k8s.io"

var crds = Metadata[crd](schema.GroupVersionResource{Group: apiextensions, Version: "v1", Resource: "customresourcedefinitions"})

// definitions are the CustomResourceDefinitions of a source.
type definitions struct{ *Source }

var _ reflector.Definitions = definitions{}

// Use implements reflector.Definitions.
func (d definitions) Use() (release func()) {
	crds, err := d.crds()
	if err != nil {
		return func() {}
	}
	_, release = crds.use()
	return release
}

// Await implements reflector.Definitions.
func (d definitions) Await(ctx context.Context, name string, limit time.Duration, onAbsent func()) (known bool) {
	crds, err := d.crds()
	if err != nil {
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	unsynced := time.AfterFunc(limit, cancel)
	defer unsynced.Stop()
	for batch := range crds.Changes(ctx, WithSubscriberName("wait for "+name)) {
		for _, c := range batch.Changes {
			if c.Kind == Upsert && c.Key.Name == name {
				return true
			}
		}
		if batch.Synced {
			unsynced.Stop()
			known = true
			onAbsent()
		}
	}
	return known
}

// Forbidden implements reflector.Definitions.
func (d definitions) Forbidden() bool {
	crds, err := d.crds()
	return err == nil && crds.config.Conditions.Is(conditions.Connection, apierrors.IsForbidden)
}
