// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package azure

import (
	"maps"
	"slices"

	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/resources/cloudipam"
	"github.com/skep-operator/skep/runtime/cell"
)

// Config says where the machines of the cluster are, and with which credentials the operator changes them.
type Config struct {
	AzureSubscriptionID         string
	AzureResourceGroup          string
	AzureUserAssignedIdentityID string
	AzureUsePrimaryAddress      bool
	AzureCloudName              string
	AzureOnlyCiliumAddresses    bool
}

// Flags implements cell.Flagger.
func (c Config) Flags(fs *pflag.FlagSet) {
	fs.String("azure-subscription-id", c.AzureSubscriptionID, "Subscription of the nodes; empty for that of the operator's own instance metadata")
	cell.FromEnv(fs, "azure-subscription-id", "AZURE_SUBSCRIPTION_ID")
	fs.String("azure-resource-group", c.AzureResourceGroup, "Resource group of the nodes; empty for that of the operator's own instance metadata")
	cell.FromEnv(fs, "azure-resource-group", "AZURE_RESOURCE_GROUP")
	fs.String("azure-user-assigned-identity-id", c.AzureUserAssignedIdentityID, "Client id of the managed identity that the operator has; empty for the credentials of the environment")
	cell.FromEnv(fs, "azure-user-assigned-identity-id", "AZURE_USER_ASSIGNED_IDENTITY_ID")
	fs.Bool("azure-use-primary-address", c.AzureUsePrimaryAddress, "Have pods use the primary address of interfaces, too")
	cell.FromEnv(fs, "azure-use-primary-address", "AZURE_USE_PRIMARY_ADDRESS")
	fs.String("azure-cloud-name", c.AzureCloudName, "Azure's cloud: AzurePublicCloud, AzureUSGovernmentCloud or AzureChinaCloud; empty for that of the operator's own instance metadata")
	cell.FromEnv(fs, "azure-cloud-name", "AZURE_ENVIRONMENT")
	fs.Bool("azure-only-cilium-addresses", c.AzureOnlyCiliumAddresses, "Have pods use only ipConfigurations that the operator has added, and what is in the pool already")
}

// Validate implements the check of config structs.
func (c Config) Validate() error {
	if _, known := clouds[c.AzureCloudName]; c.AzureCloudName != "" && !known {
		return cell.Invalid("azure-cloud-name", "must be one of %v, or empty", slices.Sorted(maps.Keys(clouds)))
	}
	return nil
}

// checkFilter reports an option of other clouds.
func checkFilter(c cloudipam.Config) error {
	if len(c.InstanceTagsFilter) > 0 {
		return cell.Questionable("instance-tags-filter", "has no effect on Azure: all machines of the resource group are read")
	}
	return nil
}
