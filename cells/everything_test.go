// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cells_test

import (
	"github.com/skep-operator/skep/cells"
	"github.com/skep-operator/skep/cells/ipam/alibabacloud"
	"github.com/skep-operator/skep/cells/ipam/aws"
	"github.com/skep-operator/skep/cells/ipam/azure"
	"github.com/skep-operator/skep/resources/cloudipam"
)

// everything is the operator with all clouds.
var everything = cells.Operator.With(cloudipam.Cell).WithInTerm("leader", aws.Cell, azure.Cell, alibabacloud.Cell)
