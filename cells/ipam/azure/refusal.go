// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/skep-operator/skep/resources/cloudipam"
)

// permissions are what the operator's identity needs for operations.
var permissions = map[string]string{
	opScaleSets:     "Microsoft.Compute/virtualMachineScaleSets/read",
	opScaleSetNICs:  "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read",
	opMachineNICs:   "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/read",
	opNICs:          "Microsoft.Network/networkInterfaces/read",
	opNetworks:      "Microsoft.Network/virtualNetworks/read",
	opGetMachine:    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
	opUpdateMachine: "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/write and Microsoft.Network/virtualNetworks/subnets/join/action",
	opGetNIC:        "Microsoft.Network/networkInterfaces/read",
	opUpdateNIC:     "Microsoft.Network/networkInterfaces/write and Microsoft.Network/virtualNetworks/subnets/join/action",
}

// describe makes one line of an error of the SDK. What users can remedy is a NodeError, whose text has no ids and times.
func describe(operation string, err error) error {
	answer := new(azcore.ResponseError)
	if err == nil || !errors.As(err, &answer) {
		return err
	}
	refused := &refusal{operation, answer.StatusCode, answer.ErrorCode, messageOf(answer)}
	switch code := answer.ErrorCode; {
	case answer.StatusCode == http.StatusForbidden:
		return &cloudipam.NodeError{Status: code, Text: "the operator's identity lacks a permission on Azure: " + permissions[operation], Err: refused}
	case strings.Contains(code, "SubnetIsFull"), strings.Contains(code, "SubnetFull"):
		return &cloudipam.NodeError{Status: code, Text: "the subnet is full: Azure answers " + code, Err: refused}
	case strings.Contains(code, "Quota"), strings.Contains(code, "LimitReached"):
		return &cloudipam.NodeError{Status: code, Text: "a quota of the subscription is used up: Azure answers " + code, Err: refused}
	case isChange(operation) && (answer.StatusCode == http.StatusBadRequest || answer.StatusCode == http.StatusOK): // an operation that has failed
		return &cloudipam.NodeError{Status: code, Text: "Azure does not add addresses: " + code, Err: refused}
	}
	return refused
}

func isChange(operation string) bool { return operation == opUpdateMachine || operation == opUpdateNIC }

// refusal is an answer of Azure that is an error.
type refusal struct {
	operation string
	status    int
	code      string
	message   string
}

func (r *refusal) Error() string {
	text := fmt.Sprintf("%s: %d %s", r.operation, r.status, http.StatusText(r.status))
	if r.code != "" {
		text += ": " + r.code
	}
	switch r.status {
	case http.StatusConflict, http.StatusPreconditionFailed:
		return text + ": it was changed by another writer"
	case http.StatusTooManyRequests:
		return text
	}
	if r.message != "" && isChange(r.operation) { // others are in health, which has no ids and times
		text += ": " + r.message
	}
	return text
}

// messageOf is the first line of the message of an answer.
func messageOf(e *azcore.ResponseError) string {
	if e.RawResponse == nil {
		return ""
	}
	text, err := runtime.Payload(e.RawResponse)
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err != nil || json.Unmarshal(text, &body) != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(body.Error.Message), "\n")
	return line
}

// unlessNotFound is nil for what does not exist.
func unlessNotFound(err error) error {
	if of := new(refusal); errors.As(err, &of) && of.status == http.StatusNotFound {
		return nil
	}
	return err
}
