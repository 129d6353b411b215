// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"fmt"
	"path"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/controlplane" // installs all groups into the scheme
	"k8s.io/kubernetes/pkg/kubeapiserver"
)

// storagePrefix is the API server's default.
const storagePrefix = "/registry"

// encoder turns items into what the API server would store. It is safe for
// concurrent use.
type encoder struct {
	factory *storage.DefaultStorageFactory

	mu     sync.Mutex
	owners *fieldOwners
	codecs map[schema.GroupResource]runtime.Codec
}

func newEncoder() (*encoder, error) {
	backend := storagebackend.NewDefaultConfig(storagePrefix, nil)
	etcdOptions := options.NewEtcdOptions(backend)
	etcdOptions.DefaultStorageMediaType = runtime.ContentTypeProtobuf
	config := kubeapiserver.NewStorageFactoryConfig()
	config.APIResourceConfig = storage.NewResourceConfig()
	factory, err := config.Complete(etcdOptions).New()
	if err != nil {
		return nil, fmt.Errorf("make the API server's storage encodings: %w", err)
	}
	owners, err := newFieldOwners()
	if err != nil {
		return nil, err
	}
	return &encoder{factory: factory, owners: owners, codecs: map[schema.GroupResource]runtime.Codec{}}, nil
}

// encode returns the key and the value under which an item is stored.
func (e *encoder) encode(it item) (key string, value []byte, err error) {
	if it.custom {
		key, value, err = e.encodeCustom(it)
	} else {
		key, value, err = e.encodeBuiltin(it)
	}
	if err != nil {
		return "", nil, fmt.Errorf("encode %v: %w", it, err)
	}
	return key, value, nil
}

func (e *encoder) encodeBuiltin(it item) (string, []byte, error) {
	resource := it.gvr().GroupResource()
	codec, err := e.codec(resource, it.object)
	if err != nil {
		return "", nil, err
	}
	// What is defaulted and what is spelled twice is set as when a request is
	// decoded.
	legacyscheme.Scheme.Default(it.object)
	internal, err := legacyscheme.Scheme.ConvertToVersion(it.object, schema.GroupVersion{Group: it.gvk.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return "", nil, err
	}
	external, err := legacyscheme.Scheme.ConvertToVersion(internal, it.gvk.GroupVersion())
	if err != nil {
		return "", nil, err
	}
	it.object = external.(object)
	if err := e.fillOwners(it); err != nil {
		return "", nil, err
	}
	value, err := runtime.Encode(codec, it.object)
	return path.Join(storagePrefix, e.factory.ResourcePrefix(resource), it.object.GetNamespace(), it.object.GetName()), value, err
}

// encodeCustom encodes as the server of custom resources does.
func (e *encoder) encodeCustom(it item) (string, []byte, error) {
	if err := e.fillOwners(it); err != nil {
		return "", nil, err
	}
	u, err := asUnstructured(it, it.object)
	if err != nil {
		return "", nil, err
	}
	value, err := runtime.Encode(unstructured.UnstructuredJSONScheme, u)
	return path.Join(storagePrefix, it.gvk.Group, it.resource, it.object.GetNamespace(), it.object.GetName()), value, err
}

func (e *encoder) fillOwners(it item) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.owners.fill(it)
}

func (e *encoder) codec(resource schema.GroupResource, example runtime.Object) (runtime.Codec, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if codec := e.codecs[resource]; codec != nil {
		return codec, nil
	}
	config, err := e.factory.NewConfig(resource, example)
	if err != nil {
		return nil, fmt.Errorf("find the storage encoding of %s: %w", resource, err)
	}
	e.codecs[resource] = config.Codec
	return config.Codec, nil
}
