// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var resource = v2alpha1.CiliumEndpointSliceResource

func refOf(name string) k8s.Ref { return k8s.Ref{Resource: resource, Name: name} }

// server is the CiliumEndpointSlices of the API server.
type server interface {
	create(ctx context.Context, obj *v2alpha1.CiliumEndpointSlice) (slim.UID, slim.Revision, error)
	// update writes a slice. The entries named by copies are copied from the server.
	update(ctx context.Context, obj *v2alpha1.CiliumEndpointSlice, copies []string) (slim.UID, slim.Revision, error)
	delete(ctx context.Context, name string, base stored) error
	// get reads a slice. The error is NotFound if there is none.
	get(ctx context.Context, name string) (stored, error)
}

// api implements server. A slice is written as a whole, as there is no other writer: an update needs no read before.
type api struct{ client k8s.Client }

func newAPI(c k8s.Client) server { return api{c} }

func (a api) create(ctx context.Context, obj *v2alpha1.CiliumEndpointSlice) (slim.UID, slim.Revision, error) {
	encoded, err := encode(obj)
	if err != nil {
		return slim.UID{}, 0, err
	}
	stored, err := a.client.Create(ctx, resource, encoded)
	if err != nil {
		return slim.UID{}, 0, err
	}
	return versionOf(stored)
}

func (a api) update(ctx context.Context, obj *v2alpha1.CiliumEndpointSlice, copies []string) (slim.UID, slim.Revision, error) {
	encoded, err := encode(obj)
	if err == nil && len(copies) > 0 {
		err = a.copyStored(ctx, encoded, copies)
	}
	if err != nil {
		return slim.UID{}, 0, err
	}
	stored, err := a.client.Update(ctx, resource, encoded)
	if err != nil {
		return slim.UID{}, 0, err
	}
	return versionOf(stored)
}

// encode returns a slice with its endpoints as JSON. As maps, which the client would make of them, a hundred take a
// quarter of a megabyte.
func encode(obj *v2alpha1.CiliumEndpointSlice) (*unstructured.Unstructured, error) {
	rest := *obj
	rest.Endpoints = nil
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&rest)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", obj.Name, err)
	}
	endpoints, err := json.Marshal(obj.Endpoints)
	if err != nil {
		return nil, fmt.Errorf("encoding the endpoints of %s: %w", obj.Name, err)
	}
	content["endpoints"] = json.RawMessage(endpoints)
	return &unstructured.Unstructured{Object: content}, nil
}

// copyStored replaces entries by those of the server, if the slice there is the one to be replaced.
func (a api) copyStored(ctx context.Context, slice *unstructured.Unstructured, names []string) error {
	now, err := a.client.Get(ctx, k8s.Ref{Resource: resource, Name: slice.GetName()})
	if err != nil {
		return err
	}
	if now.GetUID() != slice.GetUID() || now.GetResourceVersion() != slice.GetResourceVersion() {
		return apierrors.NewConflict(resource.GroupResource(), slice.GetName(), errors.New("it has changed since it was read"))
	}
	stored, _, err := unstructured.NestedSlice(now.Object, "endpoints")
	if err != nil {
		return err
	}
	byName := map[string]any{}
	for _, e := range stored {
		if entry, ok := e.(map[string]any); ok {
			byName[fmt.Sprint(entry["name"])] = entry
		}
	}
	var endpoints []json.RawMessage
	if err := json.Unmarshal(slice.Object["endpoints"].(json.RawMessage), &endpoints); err != nil {
		return err
	}
	for i, e := range endpoints {
		var entry struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(e, &entry); err != nil {
			return err
		}
		if !slices.Contains(names, entry.Name) {
			continue
		}
		has, exists := byName[entry.Name]
		if !exists {
			return fmt.Errorf("slice %s has no endpoint %s, which cannot be decoded and must be kept", slice.GetName(), entry.Name)
		}
		if endpoints[i], err = json.Marshal(has); err != nil {
			return err
		}
	}
	text, err := json.Marshal(endpoints)
	slice.Object["endpoints"] = json.RawMessage(text)
	return err
}

func versionOf(obj *unstructured.Unstructured) (slim.UID, slim.Revision, error) {
	revision, err := slim.ParseRevision(obj.GetResourceVersion())
	return slim.ParseUID(string(obj.GetUID())), revision, err
}

func (a api) delete(ctx context.Context, name string, base stored) error {
	return a.client.Delete(ctx, refOf(name), k8s.Preconditions{UID: base.uid.API(), ResourceVersion: base.revision.String()})
}

func (a api) get(ctx context.Context, name string) (now stored, err error) {
	obj, err := a.client.Get(ctx, refOf(name))
	if err != nil {
		return now, err
	}
	var full v2alpha1.CiliumEndpointSlice
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &full); err != nil {
		return now, fmt.Errorf("decoding %s: %w", name, err)
	}
	now.namespace, now.terminating = full.Namespace, full.DeletionTimestamp != nil
	for i := range full.Endpoints {
		now.endpoints = append(now.endpoints, ciliumio.SliceEndpointOf(&full.Endpoints[i]))
	}
	now.uid, now.revision, err = versionOf(obj)
	return now, err
}
