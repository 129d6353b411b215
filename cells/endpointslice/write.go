// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

var resource = v2alpha1.CiliumEndpointSliceResource

// server is the CiliumEndpointSlices of the API server.
type server interface {
	create(ctx context.Context, obj *v2alpha1.CiliumEndpointSlice) (slim.UID, slim.Revision, error)
	update(ctx context.Context, obj *v2alpha1.CiliumEndpointSlice) (slim.UID, slim.Revision, error)
	remove(ctx context.Context, name string, upon shown) error
	// get reads a slice as it is now. The error is NotFound if there is none.
	get(ctx context.Context, name string) (shown, error)
}

// api implements server. A slice is written as a whole, for nobody else writes
// any of it: an update needs no read before.
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
	return stamp(stored)
}

func (a api) update(ctx context.Context, obj *v2alpha1.CiliumEndpointSlice) (slim.UID, slim.Revision, error) {
	encoded, err := encode(obj)
	if err != nil {
		return slim.UID{}, 0, err
	}
	stored, err := a.client.Update(ctx, resource, encoded)
	if err != nil {
		return slim.UID{}, 0, err
	}
	return stamp(stored)
}

// encode returns a slice with its endpoints as they are on the wire. As maps, which
// the client would make of them, a hundred take a quarter of a megabyte.
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

func stamp(obj *unstructured.Unstructured) (slim.UID, slim.Revision, error) {
	revision, err := slim.ParseRevision(obj.GetResourceVersion())
	return slim.ParseUID(string(obj.GetUID())), revision, err
}

func (a api) remove(ctx context.Context, name string, upon shown) error {
	return a.client.Delete(ctx, k8s.Ref{Resource: resource, Name: name}, k8s.Preconditions{UID: upon.uid.API(), ResourceVersion: upon.revision.String()})
}

func (a api) get(ctx context.Context, name string) (now shown, err error) {
	obj, err := a.client.Get(ctx, k8s.Ref{Resource: resource, Name: name})
	if err != nil {
		return now, err
	}
	var full v2alpha1.CiliumEndpointSlice
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &full); err != nil {
		return now, fmt.Errorf("decoding %s: %w", name, err)
	}
	now.namespace = full.Namespace
	for i := range full.Endpoints {
		now.endpoints = append(now.endpoints, ciliumio.SliceEndpointOf(&full.Endpoints[i]))
	}
	now.uid, now.revision, err = stamp(obj)
	return now, err
}

// refused reports whether an error is an answer that says that nothing was done.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError
}
