// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"errors"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

const unreachable = "--k8s-api-server=http://127.0.0.1:1"

func TestCell(t *testing.T) {
	celltest.Check(t, Cell, celltest.With(append([]cell.Cell{cloudipam.Cell}, operatortest.Resources...)...), celltest.InTerm("leader"),
		celltest.Args(unreachable, "--ipam=azure"), celltest.OffArgs(unreachable, "--ipam=kubernetes"))
}

// A filter of other clouds is reported, and does not prevent the start.
func TestFilterOfOtherClouds(t *testing.T) {
	of := new(cell.InvalidError)
	err := checkFilter(cloudipam.Config{InstanceTagsFilter: map[string]string{"a": "b"}})
	if !errors.As(err, &of) || !of.Questionable || of.Flag != "instance-tags-filter" || checkFilter(cloudipam.Config{}) != nil {
		t.Errorf("%v", err)
	}
}

func TestCloudNames(t *testing.T) {
	for name, valid := range map[string]bool{"": true, "AzurePublicCloud": true, "AzureChinaCloud": true, "AzureUSGovernmentCloud": true, "azure": false} {
		if err := (Config{AzureCloudName: name}).Validate(); (err == nil) != valid || err != nil && !strings.Contains(err.Error(), "AzureChinaCloud") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
