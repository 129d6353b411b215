// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"context"
	"fmt"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// apiWorkers is how many requests are in flight.
const apiWorkers = 32

// ThroughAPI writes a load through the API server, installing the definitions
// of custom resources that are missing. Objects that exist are left as they
// are.
func ThroughAPI(ctx context.Context, config *rest.Config, opts Options, progress *Progress) error {
	p, err := newPlan(opts)
	if err != nil {
		return err
	}
	if err := InstallCRDs(ctx, config); err != nil {
		return err
	}
	w, err := newAPIWriter(config)
	if err != nil {
		return err
	}
	for _, ph := range p.phases(false) {
		progress.begin(ph.name, ph.count)
		err := inParallel(ctx, ph.count, apiWorkers, func(ctx context.Context, next func() (int, bool)) error {
			for i, ok := next(); ok; i, ok = next() {
				if err := w.write(ctx, ph.item(i)); err != nil {
					return err
				}
				progress.add(1)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("load %s: %w", ph.name, err)
		}
		progress.end()
	}
	return nil
}

// apiWriter writes items. The API server draws its own UIDs, so references to
// owners are rewritten.
type apiWriter struct {
	clients map[schema.GroupVersion]rest.Interface

	mu   sync.Mutex
	uids map[types.UID]types.UID // planned to real
}

func newAPIWriter(config *rest.Config) (*apiWriter, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, fmt.Errorf("register types: %w", err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	codecs := serializer.NewCodecFactory(scheme)
	w := &apiWriter{clients: map[schema.GroupVersion]rest.Interface{}, uids: map[types.UID]types.UID{}}
	for _, k := range []*kind{podKind, deploymentKind, endpointSliceKind, ciliumNodeKind} {
		client, err := newRESTClient(config, k, codecs)
		if err != nil {
			return nil, err
		}
		w.clients[k.gvk.GroupVersion()] = client
	}
	return w, nil
}

// newRESTClient returns a client of a kind's group: protobuf, but for custom
// resources.
func newRESTClient(config *rest.Config, k *kind, codecs serializer.CodecFactory) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	if k.custom {
		config.ContentType = runtime.ContentTypeJSON
	}
	version := k.gvk.GroupVersion()
	config.GroupVersion, config.APIPath = &version, "/apis"
	if version.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", version, err)
	}
	return client, nil
}

func (w *apiWriter) write(ctx context.Context, it item) error {
	planned := it.object.GetUID()
	w.rewrite(it)
	created, err := w.create(ctx, it)
	if err != nil {
		return fmt.Errorf("create %v: %w", it, err)
	}
	w.mu.Lock()
	w.uids[planned] = created.GetUID()
	w.mu.Unlock()
	if it.reporter == "" {
		return nil
	}
	it.object.SetUID(created.GetUID())
	it.object.SetResourceVersion(created.GetResourceVersion())
	err = request(w.client(it).Put(), it).Name(it.object.GetName()).SubResource("status").
		Param("fieldManager", it.reporter).Body(it.object).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("report the status of %v: %w", it, err)
	}
	return nil
}

func (w *apiWriter) client(it item) rest.Interface { return w.clients[it.gvk.GroupVersion()] }

// create returns the object as it is in the cluster.
func (w *apiWriter) create(ctx context.Context, it item) (object, error) {
	sent := it.object
	if it.reporter != "" {
		sent = sent.DeepCopyObject().(object)
		statusOf(sent).SetZero()
	}
	result, err := request(w.client(it).Post(), it).Param("fieldManager", it.creator).Body(sent).Do(ctx).Get()
	if apierrors.IsAlreadyExists(err) {
		result, err = request(w.client(it).Get(), it).Name(it.object.GetName()).Do(ctx).Get()
	}
	if err != nil {
		return nil, err
	}
	return result.(object), nil
}

func request(r *rest.Request, it item) *rest.Request {
	return r.NamespaceIfScoped(it.object.GetNamespace(), it.object.GetNamespace() != "").Resource(it.resource)
}

// rewrite replaces planned UIDs by real ones and takes out what the API server
// sets.
func (w *apiWriter) rewrite(it item) {
	it.object.SetUID("")
	it.object.SetCreationTimestamp(metav1.Time{})
	w.mu.Lock()
	defer w.mu.Unlock()
	owners := it.object.GetOwnerReferences()
	for i := range owners {
		owners[i].UID = w.uids[owners[i].UID]
	}
	it.object.SetOwnerReferences(owners)
	if endpoints, ok := it.object.(*discoveryv1.EndpointSlice); ok {
		for i := range endpoints.Endpoints {
			target := endpoints.Endpoints[i].TargetRef
			target.UID = w.uids[target.UID]
		}
	}
}
